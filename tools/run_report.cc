#include "run_report.h"

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

namespace cgx::tool {
namespace {

using Json = nlohmann::json;

constexpr int kBad = 2;
constexpr std::uintmax_t kLargestFile = 64 << 20;  // ours stay below 1 MiB
constexpr std::uint64_t kAbove = std::numeric_limits<std::uint64_t>::max();

constexpr std::pair<const char*, std::uint64_t RunSums::*> kSums[] = {
    {"operations", &RunSums::operations}, {"smallOperations", &RunSums::smallOperations},
    {"exactBytes", &RunSums::exactBytes}, {"wireBytes", &RunSums::wireBytes},
    {"codedTiles", &RunSums::codedTiles}, {"zeroTiles", &RunSums::zeroTiles},
    {"rawTiles", &RunSums::rawTiles},     {"exactTiles", &RunSums::exactTiles},
    {"wholeTiles", &RunSums::wholeTiles}, {"encodeNs", &RunSums::encodeNs},
    {"reduceNs", &RunSums::reduceNs},     {"decodeNs", &RunSums::decodeNs},
    {"wireNs", &RunSums::wireNs},
};

/// Reads fields of one object; the first that is not as documented becomes the status.
class Fields {
 public:
  Fields(const Json& object, std::string where, Status* status)
      : object_(object), where_(std::move(where)), status_(status) {
    if (!object_.is_object()) bad("", "is no object");
  }
  std::uint64_t number(const char* name) {
    const Json* value = find(name);
    if (value == nullptr) return 0;
    if (!value->is_number_unsigned()) bad(name, "is no whole number from 0 on");
    return value->is_number_unsigned() ? value->get<std::uint64_t>() : 0;
  }
  std::string text(const char* name) {
    const Json* value = find(name);
    if (value == nullptr) return "";
    if (!value->is_string()) bad(name, "is no text");
    return value->is_string() ? value->get<std::string>() : "";
  }
  /// Calls visit(Fields) for each entry.
  template <class Visit>
  void each(const char* name, Visit visit) {
    const Json* value = find(name);
    if (value == nullptr) return;
    if (!value->is_array()) return bad(name, "is no list");
    for (std::size_t i = 0; i < value->size() && status_->ok(); ++i)
      visit(Fields((*value)[i], where_ + name + "[" + std::to_string(i) + "].", status_));
  }
  void bad(const char* name, const char* what) {
    if (status_->ok()) *status_ = Status::invalid(where_ + name + " " + what);
  }

 private:
  const Json* find(const char* name) {
    if (!object_.is_object()) return nullptr;
    const auto it = object_.find(name);
    if (it != object_.end()) return &*it;
    bad(name, "is missing");
    return nullptr;
  }

  const Json& object_;
  std::string where_;
  Status* status_;
};

void addCommunicator(RunFile& file, Fields comm) {
  for (const auto& [name, field] : kSums) file.sums.*field += comm.number(name);
  comm.each("sizes", [&](Fields size) {
    const std::uint64_t upTo = size.number("upToBytes");
    RunSize& sum = file.sizes[upTo == 0 ? kAbove : upTo];
    sum.operations += size.number("operations");
    sum.inputBytes += size.number("inputBytes");
    sum.wireBytes += size.number("wireBytes");
    sum.ns += size.number("ns");
  });
}

/// What stands in a file must not steer a terminal.
std::string printable(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, 256)) out += c >= ' ' && c <= '~' ? c : '?';
  return out;
}

[[gnu::format(printf, 1, 2)]] std::string printed(const char* format, ...) {
  char line[400];
  std::va_list values;
  va_start(values, format);
  std::vsnprintf(line, sizeof line, format, values);
  va_end(values);
  return line;
}

double of(std::uint64_t value) { return static_cast<double>(value); }
std::string ratioOf(std::uint64_t exact, std::uint64_t wire) {
  return wire == 0 ? "-" : printed("%.2f", of(exact) / of(wire));
}
std::uint64_t codecNs(const RunSums& sums) { return sums.encodeNs + sums.reduceNs + sums.decodeNs; }
using Count = unsigned long long;

std::string heading(const std::vector<RunFile>& files, const RunSums& all) {
  std::set<std::string> hosts;
  std::uint64_t longest = 0;
  std::uint64_t unlisted = 0;
  for (const RunFile& file : files) {
    hosts.insert(file.host);
    longest = std::max(longest, file.milliseconds);
    unlisted += file.unlisted;
  }
  std::string out = printed("processes   %zu, hosts %zu, %.1f s\n", files.size(), hosts.size(), of(longest) / 1e3);
  out += printed("operations  %llu, of which %llu travelled exact because they are small\n", Count{all.operations},
                 Count{all.smallOperations});
  out += printed("wire        %.6g GB instead of %.6g GB in exact mode: ratio %s\n", of(all.wireBytes) / 1e9,
                 of(all.exactBytes) / 1e9, ratioOf(all.exactBytes, all.wireBytes).c_str());
  out +=
      printed("time        encode %.3f s, reduce %.3f s, decode %.3f s, wire %.3f s (over all threads and messages)\n",
              of(all.encodeNs) / 1e9, of(all.reduceNs) / 1e9, of(all.decodeNs) / 1e9, of(all.wireNs) / 1e9);
  const std::uint64_t exactTiles = std::min(all.exactTiles, all.rawTiles);
  out += printed(
      "tiles       %llu coded, %llu zero, %llu raw in exact operations, %llu raw as they cannot be coded, %llu "
      "sent whole\n",
      Count{all.codedTiles}, Count{all.zeroTiles}, Count{exactTiles}, Count{all.rawTiles - exactTiles},
      Count{all.wholeTiles});
  if (unlisted > 0)
    out += printed("left out    %llu communicators that closed and are no longer listed\n", Count{unlisted});
  return out;
}

std::string sizeTable(const std::vector<RunFile>& files) {
  std::map<std::uint64_t, RunSize> sizes;
  for (const RunFile& file : files) {
    for (const auto& [upTo, size] : file.sizes) {
      RunSize& sum = sizes[upTo];
      sum.operations += size.operations;
      sum.inputBytes += size.inputBytes;
      sum.wireBytes += size.wireBytes;
      sum.ns += size.ns;
    }
  }
  std::string out = printed("\nall-reduces\n%16s %12s %14s %14s %12s\n", "up to bytes", "operations", "bytes in",
                            "wire bytes", "mean us");
  for (const auto& [upTo, size] : sizes) {
    const std::string name = upTo == kAbove ? "above" : std::to_string(upTo);
    out += printed("%16s %12llu %14llu %14llu %12.1f\n", name.c_str(), Count{size.operations}, Count{size.inputBytes},
                   Count{size.wireBytes}, size.operations == 0 ? 0 : of(size.ns) / of(size.operations) / 1e3);
  }
  return out;
}

std::string rankTable(const std::vector<RunFile>& files) {
  std::string out = printed("\n%6s %-24s %12s %14s %8s %11s %11s\n", "rank", "host", "operations", "wire bytes",
                            "ratio", "codec s", "wire s");
  const RunFile* slowest = &files.front();
  for (const RunFile& file : files) {
    const RunSums& s = file.sums;
    out += printed("%6llu %-24s %12llu %14llu %8s %11.3f %11.3f\n", Count{file.rank}, printable(file.host).c_str(),
                   Count{s.operations}, Count{s.wireBytes}, ratioOf(s.exactBytes, s.wireBytes).c_str(),
                   of(codecNs(s)) / 1e9, of(s.wireNs) / 1e9);
    if (codecNs(s) > codecNs(slowest->sums)) slowest = &file;
  }
  return out + printed("\nslowest     rank %llu on %s: most time in the codec\n", Count{slowest->rank},
                       printable(slowest->host).c_str());
}

Result<RunFile> readRunFile(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error))
    return Status::invalid(printable(path) + ": " + (error ? error.message() : "no regular file"));
  if (std::filesystem::file_size(path, error) > kLargestFile)
    return Status::invalid(printable(path) + ": larger than a statistics file can be");
  std::ifstream in(path, std::ios::binary);
  if (!in) return Status::system("open " + printable(path), errno);
  return parseRunFile(path, std::string(std::istreambuf_iterator<char>(in), {}));
}

}  // namespace

void addRunReportFlags(CLI::App& command, RunReportOptions* options) {
  command.add_option("files", options->files, "Statistics files that CGX_STATS_FILE named, as JSON, of all ranks")
      ->type_name("FILE")
      ->required();
}

Result<RunFile> parseRunFile(const std::string& path, std::string_view text) {
  const std::string where = printable(path) + ": ";
  Json json;
  try {
    json = Json::parse(text);
  } catch (const Json::parse_error& error) {
    return Status::invalid(where + "no JSON from byte " + std::to_string(error.byte) +
                           " on (CGX_STATS_FORMAT=prometheus cannot be read here)");
  } catch (const Json::exception& error) {  // a number beyond every type
    return Status::invalid(where + printable(error.what()));
  }
  Status status;
  RunFile file;
  file.path = path;
  Fields top(json, where, &status);
  if (top.text("schema") != "cgx-statistics") top.bad("schema", "is not cgx-statistics");
  if (top.number("version") != 1) top.bad("version", "is not 1, the only one that this program reads");
  file.host = top.text("host");
  file.pid = top.number("pid");
  file.rank = top.number("rank");
  file.milliseconds = top.number("milliseconds");
  file.unlisted = top.number("unlisted");
  top.each("communicators", [&](Fields comm) { addCommunicator(file, std::move(comm)); });
  if (!status.ok()) return status;
  return file;
}

Result<std::string> runReport(std::vector<RunFile> files) {
  if (files.empty()) return Status::invalid("no statistics files");
  const auto process = [](const RunFile& f) { return std::tie(f.host, f.pid); };
  const auto order = [&](const RunFile& a, const RunFile& b) {
    return std::tie(a.rank, a.host, a.pid) < std::tie(b.rank, b.host, b.pid);
  };
  std::sort(files.begin(), files.end(), order);
  const auto twice = std::adjacent_find(files.begin(), files.end(),
                                        [&](const RunFile& a, const RunFile& b) { return process(a) == process(b); });
  if (twice != files.end())
    return Status::invalid(printable(twice->path) + " and " + printable(std::next(twice)->path) +
                           " are of the same process");
  RunSums all;
  for (const RunFile& file : files)
    for (const auto& [name, field] : kSums) all.*field += file.sums.*field;
  return heading(files, all) + sizeTable(files) + rankTable(files);
}

int report(const RunReportOptions& options) {
  std::vector<RunFile> files;
  for (const std::string& path : options.files) {
    Result<RunFile> file = readRunFile(path);
    if (!file.ok()) {
      std::fprintf(stderr, "cgx report: %s\n", file.status().text().c_str());
      return kBad;
    }
    files.push_back(std::move(file).value());
  }
  const Result<std::string> text = runReport(std::move(files));
  if (!text.ok()) std::fprintf(stderr, "cgx report: %s\n", text.status().text().c_str());
  if (text.ok()) std::fputs(text.value().c_str(), stdout);
  return text.ok() ? 0 : kBad;
}

}  // namespace cgx::tool
