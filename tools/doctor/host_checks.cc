// Checks of memory, limits and GPUs.
#include <algorithm>

#include "cgx/collective.h"
#include "doctor/checks.h"
#include "sizes.h"

namespace cgx::tool::doctor {
namespace {

constexpr std::uint64_t kMi = 1 << 20;

/// The most that a communicator may take where the number of nodes is not known.
std::size_t mostStaging(const Settings& settings) {
  std::size_t most = 0;
  for (int nodes = 2; nodes <= settings.maxRanks; ++nodes)
    most = std::max(most, collective::stagingBytes(settings, nodes));
  return most;
}

/// In whole MiB, from 10 GiB on in whole GiB.
std::string about(std::uint64_t bytes) {
  const std::uint64_t unit = bytes >= 10 * 1024 * kMi ? 1024 * kMi : bytes >= kMi ? kMi : 1;
  return sizeText(bytes / unit * unit);
}

}  // namespace

Check checkStaging(const Facts& facts) {
  const std::string name = "staging";
  const std::size_t each =
      facts.nodes > 1 ? collective::stagingBytes(facts.settings, facts.nodes) : mostStaging(facts.settings);
  // NCCL has one collnet rank for each interface that it uses on a node, and no more than there are processes.
  const auto heads = static_cast<std::uint64_t>(std::clamp<std::size_t>(
      facts.devices.size(), 1, static_cast<std::size_t>(std::max(1, facts.settings.localRanks))));
  const std::uint64_t all = each * static_cast<std::uint64_t>(facts.comms) * heads;
  std::string text = about(all) + " on this host: " + std::to_string(facts.comms) + " communicator(s) x " +
                     std::to_string(heads) + " collnet rank(s) x " + about(each) + " for " +
                     (facts.nodes > 1 ? std::to_string(facts.nodes) + " nodes" : "any number of nodes");
  if (!facts.memory.available) return note(name, text + "; how much memory is free cannot be told");
  text += "; " + about(*facts.memory.available) + " are free";
  if (all <= *facts.memory.available) return ok(name, text);
  return problem(name, text,
                 "lower CGX_STAGING (" + about(facts.settings.staging) +
                     " for each communicator now, the same on all ranks) or raise the container's limit");
}

Check checkSharedMemory(const Facts& facts) {
  const std::string name = "/dev/shm";
  // NCCL puts about 9.6 MB there for a connection inside the host, two for each rank of a ring; the plugin nothing.
  constexpr std::uint64_t kForARank = 20 * kMi;
  const HostMemory& memory = facts.memory;
  const std::string remedy =
      "docker run --shm-size=1g (Kubernetes: an emptyDir with medium Memory at /dev/shm), or "
      "mount -o remount,size=1g /dev/shm";
  if (!memory.sharedSize) return problem(name, "there is none; NCCL needs it between the ranks of a host", remedy);
  const std::uint64_t free = memory.sharedFree.value_or(0);
  const std::string text = about(*memory.sharedSize) + ", " + about(free) + " free";
  const std::uint64_t ranks = static_cast<std::uint64_t>(std::max(2, facts.settings.localRanks));
  const std::uint64_t need = ranks * kForARank;
  if (free < need)
    return problem(
        name, text + "; NCCL itself takes about " + about(need) + " for " + std::to_string(ranks) + " ranks on a host",
        remedy);
  return ok(name, text);
}

Check checkLockedMemory(const Facts& facts) {
  const std::string name = "memlock";
  const std::uint64_t limit = facts.memory.lockable;
  if (limit == UINT64_MAX) return ok(name, "no limit");
  const std::string text = "at most " + about(limit) + " a process; the plugin locks none";
  if (limit >= 64 * kMi) return ok(name, text);
  return note(name, text + ", but InfiniBand, where a job uses it beside, needs ulimit -l unlimited");
}

Check checkFiles(const Facts& facts) {
  // Two ends of two streams for each of 64 ranks, net connections of some channels, and what the program has open.
  constexpr unsigned long kEnough = 1024;
  const std::string text = "at most " + std::to_string(facts.openFiles) + " a process";
  if (facts.openFiles < kEnough)
    return problem("open files", text, "raise it: ulimit -n 65536 (in containers: --ulimit nofile=65536)");
  return ok("open files", text);
}

Check checkGpus(const Facts& facts) {
  const std::string name = "GPUs";
  if (facts.box.gpus == 0) return note(name, "none seen on this host");
  std::string text = std::to_string(facts.box.gpus) + " x " +
                     (facts.gpus.empty() || facts.gpus.front().empty() ? "NVIDIA" : facts.gpus.front());
  if (!facts.box.known)
    return note(name, text +
                          "; whether P2P or NVLink connect them cannot be told without libnvidia-ml.so.1 (in "
                          "containers: NVIDIA_DRIVER_CAPABILITIES=compute,utility)");
  text += std::string("; NVLink: ") + (facts.box.nvlink ? "yes" : "no") + ", P2P: " + (facts.box.p2p ? "yes" : "no");
  if (facts.settings.intra == Intra::On && (facts.box.nvlink || facts.box.p2p))
    return note(name, text + "; CGX_INTRA=on has no effect, as the GPUs reach each other faster without us");
  if (facts.settings.intra == Intra::Auto && facts.box.gpus > 1 && !facts.box.nvlink && !facts.box.p2p)
    text += "; CGX_INTRA=auto compresses nothing inside this host as long as only host memory is supported";
  return ok(name, text);
}

Check checkQueues(const Facts& facts) {
  if (facts.cudaQueues.value == "1")
    return note("CUDA queues", "CUDA_DEVICE_MAX_CONNECTIONS=" + facts.cudaQueues.value + " (" +
                                   facts.cudaQueues.origin +
                                   "): only host memory can be taken then, which is all that the plugin takes so far");
  return ok("CUDA queues", "nothing unusual");
}

}  // namespace cgx::tool::doctor
