#include "doctor/lines.h"

#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>

namespace cgx::tool::doctor {
namespace {

constexpr std::string_view kMark = "@cgx-doctor ";
constexpr std::size_t kMostBytes = 64u << 20;  // of a line; the facts of a host are a few KiB

class Lines final : public Rendezvous {
 public:
  Lines(int in, int out) : in_(in), out_(out) {}

  Result<std::vector<std::string>> allGather(std::string_view mine) override {
    const std::string line = markedLine(std::string(mine));
    for (std::size_t done = 0; done < line.size();) {
      const ssize_t wrote = ::write(out_, line.data() + done, line.size() - done);
      if (wrote < 0 && errno == EINTR) continue;
      if (wrote < 0) return Status::system("writing to whoever started this", errno);
      done += static_cast<std::size_t>(wrote);
    }
    for (;;) {
      if (const auto answer = takeMarkedLine(&received_)) return unpackParts(*answer);
      char some[4096];
      const ssize_t got = ::read(in_, some, sizeof some);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0 || received_.size() > kMostBytes) return Status::remote("whoever started this has ended");
      received_.append(some, static_cast<std::size_t>(got));
    }
  }
  Status check() override { return {}; }
  std::optional<Status> giveUp(const Status& why) override { return why; }

 private:
  int in_;
  int out_;
  std::string received_;
};

}  // namespace

std::string markedLine(const std::string& text) { return std::string(kMark) + text + "\n"; }

std::optional<std::string> takeMarkedLine(std::string* received) {
  for (;;) {
    const std::size_t end = received->find('\n');
    if (end == std::string::npos) return std::nullopt;
    std::string line = received->substr(0, end);
    received->erase(0, end + 1);
    // A prompt or the like may stand before it in the line.
    if (const std::size_t mark = line.find(kMark); mark != std::string::npos) return line.substr(mark + kMark.size());
  }
}

std::string packParts(const std::vector<std::string>& parts) {
  return nlohmann::json(parts).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Result<std::vector<std::string>> unpackParts(const std::string& text) {
  try {
    return nlohmann::json::parse(text).get<std::vector<std::string>>();
  } catch (const nlohmann::json::exception&) {
    return Status::remote("got an answer that makes no sense");
  }
}

std::unique_ptr<Rendezvous> overLines(int in, int out) { return std::make_unique<Lines>(in, out); }

}  // namespace cgx::tool::doctor
