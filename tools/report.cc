#include "report.h"

#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "numbers.h"

namespace cgx::tool {
namespace {

constexpr auto kRedraw = std::chrono::milliseconds(200);
constexpr auto kSilence = std::chrono::seconds(5);  // between lines, and before the first, without a terminal

std::string ratioText(std::optional<double> ratio) {
  if (!ratio) return "-";
  char text[48];
  std::snprintf(text, sizeof text, "%.2f", *ratio);
  return text;
}

}  // namespace

void printTableHead(bool named) {
  std::printf("#%11s %12s %5s %4s %11s %8s %8s %11s %7s %9s %9s%s\n", "bytes", "count", "type", "bits", "time", "algbw",
              "busbw", "wire", "ratio", "nmse", "identical", named ? "  gradients" : "");
  std::printf("#%11s %12s %5s %4s %11s %8s %8s %11s %7s %9s %9s\n", "(B)", "(elements)", "", "", "(us)", "(GB/s)",
              "(GB/s)", "(B/rank)", "", "", "");
  std::fflush(stdout);
}

void printTableRow(const RowResult& row) {
  const std::string wire = row.wireBytes ? std::to_string(*row.wireBytes) : "-";
  std::printf("%12zu %12zu %5s %4d %11.1f %8.3f %8.3f %11s %7s %9.2e %9s%s%s\n", row.bytes, row.count,
              nameOf(row.dtype), row.bits, row.timeUs, row.algbwGBps(), row.busbwGBps(), wire.c_str(),
              ratioText(row.ratio).c_str(), row.nmse, row.identical ? "yes" : "NO", row.name.empty() ? "" : "  ",
              row.name.c_str());
  if (row.broken > 0)
    std::printf("# WRONG: %zu elements outside the error bound; %s\n", row.broken, row.firstBroken.c_str());
  std::fflush(stdout);
}

Status writeJson(const std::string& path, const std::vector<RowResult>& rows) {
  using Json = nlohmann::ordered_json;
  Json results = Json::array();
  for (const RowResult& row : rows) {
    Json one;
    one["bytes"] = row.bytes;
    one["count"] = row.count;
    one["dtype"] = nameOf(row.dtype);
    one["bits"] = row.bits;
    one["time_us"] = row.timeUs;
    one["algbw_GBps"] = row.algbwGBps();
    one["busbw_GBps"] = row.busbwGBps();
    one["wire_bytes_per_rank"] = row.wireBytes ? Json(*row.wireBytes) : Json(nullptr);
    one["ratio"] = row.ratio ? Json(*row.ratio) : Json(nullptr);
    one["nmse"] = std::isfinite(row.nmse) ? Json(row.nmse) : Json(nullptr);
    one["identical"] = row.identical;
    one["ranks"] = row.ranks;
    results.push_back(std::move(one));
  }
  Json whole;
  whole["results"] = std::move(results);
  std::ofstream file(path);
  file << whole.dump(2) << "\n";
  file.flush();
  if (!file) return Status::system("writing " + path, errno);
  return {};
}

Progress::Progress(bool enabled) : enabled_(enabled), terminal_(::isatty(STDERR_FILENO) == 1) {}

void Progress::show(const std::string& text) {
  const auto now = Clock::now();
  if (!enabled_ || now - last_ < (terminal_ ? Clock::duration(kRedraw) : Clock::duration(kSilence))) return;
  if (!terminal_ && now - started_ < kSilence) return;
  last_ = now;
  std::fprintf(stderr, terminal_ ? "\r\033[Kcgx perf: %s" : "cgx perf: %s\n", text.c_str());
  shown_ = true;
}

void Progress::clear() {
  if (shown_ && terminal_) std::fputs("\r\033[K", stderr);
  shown_ = false;
}

}  // namespace cgx::tool
