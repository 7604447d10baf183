// What a plugin can be found guilty of, by name, and the list of findings of a run.
// Knows no plugin and no processes; how findings travel to the parent is rank_runner.cc.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace cgx::host {

enum class Violation {
  // loading
  CannotLoad,
  MissingSymbol,
  MissingFunction,
  InitFails,
  NoDevices,
  BadProperties,
  // connections
  BlocksInConnect,
  ConnectFails,
  ConnectNeverCompletes,
  ConnectNotUnanimous,
  ReduceSupportDiffers,
  // calls
  CallFails,
  BlockingCall,
  CloseBlocks,
  NeverCompletes,
  WrongTestSize,
  TooFewRequests,
  // bytes of net
  CorruptsData,
  ReordersReceives,
  // numbers of collnet
  WrongSum,
  DegradesDataNextToPadding,
  RanksDiffer,
  NotReproducible,
  // memory
  WritesOutsideBuffer,
  WritesUserSendBuffer,
  TouchesStagingAfterDereg,
  TouchesUserBufferAfterDone,
  // failures of others
  PeerLossUnnoticed,
  ErrorNotSticky,
  // after dlclose
  LeaksThreads,
  LeaksFds,
  LeaksMappings,
  // the process itself
  RankCrashed,
  RankHangs,
  // the stand-in could not do its part (out of memory, no descriptors): never the plugin's fault
  HostFailed,
};
inline constexpr int kViolations = static_cast<int>(Violation::HostFailed) + 1;

/// "RanksDiffer": the name as it is written above.
std::string_view name(Violation violation) noexcept;
/// False when no violation has that name.
bool parse(std::string_view text, Violation* violation) noexcept;

struct Finding {
  Violation violation{};
  int rank = -1;  // -1: no single rank
  std::string text;
};

/// "rank 1: RanksDiffer: operation 7 ..."; one line a finding.
std::string describe(const std::vector<Finding>& findings);

}  // namespace cgx::host
