// Names of the violations, kept next to nothing else so that a new one is two lines.
#include "support/nccl_host/violations.h"

#include <array>

namespace cgx::host {
namespace {

constexpr std::array<std::string_view, kViolations> kNames{
    "CannotLoad",
    "MissingSymbol",
    "MissingFunction",
    "InitFails",
    "NoDevices",
    "BadProperties",
    "BlocksInConnect",
    "ConnectFails",
    "ConnectNeverCompletes",
    "ConnectNotUnanimous",
    "ReduceSupportDiffers",
    "CallFails",
    "BlockingCall",
    "CloseBlocks",
    "NeverCompletes",
    "WrongTestSize",
    "TooFewRequests",
    "CorruptsData",
    "ReordersReceives",
    "WrongSum",
    "DegradesDataNextToPadding",
    "RanksDiffer",
    "NotReproducible",
    "WritesOutsideBuffer",
    "WritesUserSendBuffer",
    "TouchesStagingAfterDereg",
    "TouchesUserBufferAfterDone",
    "PeerLossUnnoticed",
    "ErrorNotSticky",
    "LeaksThreads",
    "LeaksFds",
    "LeaksMappings",
    "RankCrashed",
    "RankHangs",
    "HostFailed",
};
static_assert(!kNames.back().empty(), "every violation has a name");

}  // namespace

std::string_view name(Violation violation) noexcept { return kNames[static_cast<std::size_t>(violation)]; }

bool parse(std::string_view text, Violation* violation) noexcept {
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] != text) continue;
    *violation = static_cast<Violation>(i);
    return true;
  }
  return false;
}

std::string describe(const std::vector<Finding>& findings) {
  std::string out;
  for (const Finding& f : findings) {
    out += f.rank < 0 ? std::string("all ranks: ") : "rank " + std::to_string(f.rank) + ": ";
    out += std::string(name(f.violation)) + ": " + f.text + "\n";
  }
  return out;
}

}  // namespace cgx::host
