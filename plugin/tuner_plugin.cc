// NCCL's tuner calls, every historic signature once, and the tables v2 to v6 made from them. Translates; what is chosen
// and why is in src/tuner. Never fails a call that NCCL can make: an error here would be the collective's.
#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "cgx/tuner.h"
#include "plugin/boundary.h"
#include "plugin/host.h"
#include "plugin/tuner_api.h"

namespace cgx::plugin::tuning {
namespace {

/// What one communicator's calls are answered from; NCCL's context. NULL is one that does nothing. The Host keeps it,
/// so that one that was never finalized goes with the library, and a second finalize finds nothing.
struct Context : Host::Orphan {
  Context(Host& owner, std::size_t nRanks, std::size_t nNodes)
      : host(owner), settings(owner.settings()), group{.ranks = nRanks, .nodes = nNodes} {}
  Host& host;
  const Settings settings;
  const tuner::Group group;
  bool userChose = false;  // NCCL_ALGO or NCCL_PROTO, which the table of v3- shows and v2 does not
};

std::atomic<bool> warned{false};  // of the job's unknown size, once a process

void explain(const Context& context) {
  const Settings& settings = context.settings;
  const tuner::Group& group = context.group;
  const char* fate = settings.mode == Mode::Off      ? "stay exact (CGX_MODE=off)"
                     : settings.mode == Mode::Always ? "go to collnet (CGX_MODE=always)"
                                                     : "go to collnet where the cost model sees a gain";
  switch (tuner::standingOf(settings, group)) {
    case tuner::Standing::Named:
      break;
    case tuner::Standing::NotNamed:
      fate = "stay exact: it is not the whole job (CGX_COMMS=world)";
      break;
    case tuner::Standing::Unknown:
      fate = "stay exact: the job's size is not known (CGX_COMMS=world)";
      if (settings.mode == Mode::Off || settings.bits > 8 || warned.exchange(true)) break;
      CGX_LOG(Warn, Init,
              "all-reduces stay uncompressed: CGX_COMMS=world means communicators with as many ranks as the job, which "
              "has %s by WORLD_SIZE, OMPI_COMM_WORLD_SIZE, PMI_SIZE or Slurm, and here are %zu; set CGX_COMMS=all if "
              "those of every communicator may be compressed",
              settings.worldRanks == 0 ? "no known size" : std::to_string(settings.worldRanks).c_str(), group.ranks);
      break;
  }
  CGX_LOG(Info, Init, "tuner: %zu ranks on %zu nodes: all-reduces above %zu bytes %s", group.ranks, group.nodes,
          settings.minBytes, fate);
}

// ---- init, finalize

ncclResult_t init(std::size_t nRanks, std::size_t nNodes, ncclDebugLogger_t log, void** out) noexcept {
  return guard("tuner init", [&]() -> Answer {
    if (out == nullptr) return Answer::badArgument("no place for the context");
    *out = nullptr;
    auto host = Host::attach(log, Caller::Unclear);
    // Net's init says why, and NCCL goes on without us.
    if (!host.ok() || !host.value()->named() || host.value()->problem().failed()) return {};
    auto context = std::make_unique<Context>(*host.value(), nRanks, nNodes);
    const auto isSet = [](const char* value) { return value != nullptr && *value != '\0'; };
    context->userChose = isSet(environment("NCCL_ALGO")) || isSet(environment("NCCL_PROTO"));
    if (nNodes > 1) explain(*context);
    *out = context.get();
    host.value()->adopt(0, std::move(context));
    return {};
  });
}

ncclResult_t init(void** out, std::uint64_t, std::size_t nRanks, std::size_t nNodes, ncclDebugLogger_t log,
                  ncclNvlDomainInfo_v5_t*, ncclTunerConstants_v5_t*) noexcept {
  return init(nRanks, nNodes, log, out);
}

// Asks for the Host anew: the context may be one that is gone.
ncclResult_t finalize(void* context) noexcept {
  if (context == nullptr) return ncclSuccess;
  return guard("tuner finalize", [&]() -> Answer {
    auto host = Host::get();
    if (host.ok()) host.value()->release(static_cast<Context*>(context));
    return {};
  });
}

// ---- choices. No log line, no lock, no memory: NCCL asks for every collective. The number of channels stays NCCL's:
// more than the communicator has crashes NCCL, and fewer make the pieces that reach us smaller.

tuner::Call callOf(ncclFunc_t func, std::size_t bytes, int pipeOps) noexcept {
  return {.func = static_cast<tuner::Func>(func), .bytes = bytes, .pipeOps = pipeOps};
}

ncclResult_t getCollInfo(void* context, ncclFunc_t func, std::size_t bytes, int pipeOps, float** costs, int algorithms,
                         int protocols, int, int*) noexcept {
  if (context == nullptr) return ncclSuccess;
  const auto& own = *static_cast<const Context*>(context);
  const tuner::Table table(reinterpret_cast<float*>(costs), algorithms, protocols);
  tuner::steer(own.settings, own.group, callOf(func, bytes, pipeOps), table);
  return ncclSuccess;
}

ncclResult_t getCollInfo(void* context, ncclFunc_t func, std::size_t bytes, int pipeOps, float** costs, int algorithms,
                         int protocols, int* channels) noexcept {
  return getCollInfo(context, func, bytes, pipeOps, costs, algorithms, protocols, 0, channels);
}

ncclResult_t getCollInfo(void* context, ncclFunc_t func, std::size_t bytes, int collnet, int, int pipeOps,
                         int* algorithm, int* protocol, int*) noexcept {
  if (context == nullptr || algorithm == nullptr || protocol == nullptr) return ncclSuccess;
  const auto& own = *static_cast<const Context*>(context);
  if (own.userChose) return ncclSuccess;
  const auto choice = tuner::chooseBlind(own.settings, own.group, callOf(func, bytes, pipeOps), collnet == 1);
  if (!choice) return ncclSuccess;
  *algorithm = static_cast<int>(choice->algorithm);
  *protocol = static_cast<int>(choice->protocol);
  return ncclSuccess;
}

ncclResult_t getChunkSize(void* context, ncclFunc_t func, std::size_t bytes, int algorithm, int, int channels,
                          std::size_t* chunkBytes) noexcept {
  if (context == nullptr || chunkBytes == nullptr || func != ncclFuncAllReduce) return ncclSuccess;
  if (algorithm != static_cast<int>(tuner::Algorithm::CollnetChain)) return ncclSuccess;
  const auto& own = *static_cast<const Context*>(context);
  *chunkBytes = tuner::chunkBytesFor(own.group, bytes, channels, *chunkBytes);
  return ncclSuccess;
}

// Taking the address of an overloaded function picks by the slot's type: the same line is right for every version.
template <class Tuner>
constexpr Tuner makeTuner() {
  Tuner made{};
  made.name = kPluginName;
  made.init = init;
  made.getCollInfo = getCollInfo;
  if constexpr (requires { made.destroy; }) made.destroy = finalize;
  if constexpr (requires { made.finalize; }) made.finalize = finalize;
  if constexpr (requires { made.getChunkSize; }) made.getChunkSize = getChunkSize;
  return made;
}

}  // namespace
}  // namespace cgx::plugin::tuning

// One line a version; see net_plugin.cc for the form.
#define CGX_EXPORT extern "C" [[gnu::visibility("default")]] constinit const
CGX_EXPORT ncclTuner_v2_t ncclTunerPlugin_v2 = cgx::plugin::tuning::makeTuner<ncclTuner_v2_t>();
CGX_EXPORT ncclTuner_v3_t ncclTunerPlugin_v3 = cgx::plugin::tuning::makeTuner<ncclTuner_v3_t>();
CGX_EXPORT ncclTuner_v4_t ncclTunerPlugin_v4 = cgx::plugin::tuning::makeTuner<ncclTuner_v4_t>();
CGX_EXPORT ncclTuner_v5_t ncclTunerPlugin_v5 = cgx::plugin::tuning::makeTuner<ncclTuner_v5_t>();
CGX_EXPORT ncclTuner_v6_t ncclTunerPlugin_v6 = cgx::plugin::tuning::makeTuner<ncclTuner_v6_t>();
