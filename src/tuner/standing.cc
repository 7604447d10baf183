// Which communicators CGX_COMMS means.
#include "cgx/tuner.h"

namespace cgx::tuner {

Standing standingOf(const Settings& settings, const Group& group) noexcept {
  if (group.nodes < 2) return Standing::NotNamed;
  if (settings.comms == Comms::All) return Standing::Named;
  const auto world = static_cast<std::size_t>(settings.worldRanks);
  // More GPUs than the launcher started processes: a process has several, and its count is not in NCCL's unit.
  if (world < group.ranks) return Standing::Unknown;
  return world == group.ranks ? Standing::Named : Standing::NotNamed;
}

bool surelyNotTheWorld(const Settings& settings, int nodes) noexcept {
  const int world = settings.worldRanks;
  if (settings.comms == Comms::All || nodes >= world) return false;
  // Hosts with different numbers of ranks, or unknown ones, cannot be told from a part of the job.
  if (!settings.localRanksKnown || world % settings.localRanks != 0) return false;
  return static_cast<long long>(nodes) * settings.localRanks != world;
}

}  // namespace cgx::tuner
