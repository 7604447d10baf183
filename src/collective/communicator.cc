// The communicator that plugin/ sees: mesh, memory regions and engine put together.
#include <functional>

#include "base/worker_pool.h"
#include "cgx/log.h"
#include "engine.h"
#include "mesh.h"
#include "regions.h"

namespace cgx::collective {
namespace {

class MeshCommunicator final : public Communicator {
 public:
  MeshCommunicator(WorkerPool::Lease workers, EngineOptions options, Mesh mesh)
      : workers_(std::move(workers)),
        kernels_(options.kernels),
        engine_(std::move(options), std::move(mesh.connections)) {}
  ~MeshCommunicator() override { close(); }

  Status start() { return engine_.start(); }

  Status registerMemory(void* data, std::size_t bytes, void** handle) override {
    bool isNewStaging = false;
    Region* region = regions_.add(data, bytes, &isNewStaging);
    // Whatever bits it held would otherwise be the padding of the first operations (NCCL_FACTS: CUDA staging holds 0x33
    // and 0x66).
    if (isNewStaging) kernels_->clear(data, bytes);
    *handle = region;
    return {};
  }

  Status deregisterMemory(void* handle) override {
    if (handle == nullptr) return {};
    Region region;
    bool first = false;
    if (!regions_.remove(static_cast<Region*>(handle), &region, &first)) {
      return Status::invalid("deregMr of a handle that regMr did not give");
    }
    // NCCL unmaps staging after the first deregMr, also when it aborts with operations in flight.
    if (first || !region.staging) stopUsing(region);
    return {};
  }

  Status allReduce(const void* send, void* recv, std::size_t count, codec::DType dtype, Request** request) override {
    Shape shape;
    shape.dtype = dtype;
    shape.count = count;
    const std::size_t bytes = count * shape.elementBytes();
    if (bytes > kMaxOperationBytes)
      return Status::invalid("all-reduce of " + std::to_string(bytes) + " bytes is above maxCollBytes");
    return post(shape, send, bytes, recv, bytes, bytes, request);
  }

  Status allGather(const void* send, std::span<const Part> recv, std::size_t bytesPerRank, std::size_t windowOffset,
                   std::size_t windowBytes, Request** request) override {
    Shape shape;
    shape.kind = Kind::AllGather;
    shape.count = windowBytes;
    shape.perRank = bytesPerRank;
    shape.windowFirst = windowOffset;
    std::byte* to = nullptr;
    CGX_TRY(merge(recv, windowBytes, &to));
    return post(shape, send, 0, to, windowBytes, windowBytes, request);
  }

  Status reduceScatter(std::span<const Part> send, void* recv, std::size_t bytesPerRank, std::size_t windowOffset,
                       std::size_t windowBytes, codec::DType dtype, Request** request) override {
    const std::size_t width = codec::bytesOf(dtype);
    if (bytesPerRank % width != 0 || windowOffset % width != 0 || windowBytes % width != 0) {
      return Status::invalid("reduce-scatter with a window that cuts elements");
    }
    Shape shape;
    shape.kind = Kind::ReduceScatter;
    shape.dtype = dtype;
    shape.count = windowBytes / width;
    shape.perRank = bytesPerRank / width;
    shape.windowFirst = windowOffset / width;
    std::byte* from = nullptr;
    CGX_TRY(merge(send, windowBytes, &from));
    return post(shape, from, windowBytes, recv, 0, windowBytes, request);
  }

  Status test(Request* request, std::size_t* bytes) override { return engine_.test(request, bytes); }
  Counters counters() const override { return engine_.counters(); }
  void close() noexcept override { engine_.close({}); }

 private:
  // NCCL passes one part. Several are taken where they lie one behind another.
  static Status merge(std::span<const Part> parts, std::size_t bytes, std::byte** data) {
    std::size_t total = 0;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (i > 0 && parts[i].data != parts[i - 1].data + parts[i - 1].bytes) {
        return {Code::Unsupported, "the parts of a buffer must lie one behind another"};
      }
      total += parts[i].bytes;
    }
    if (total < bytes)
      return Status::invalid("parts of " + std::to_string(total) + " bytes for a window of " + std::to_string(bytes));
    *data = parts.empty() ? nullptr : parts.front().data;
    return {};
  }

  Status post(const Shape& shape, const void* send, std::size_t sendBytes, void* recv, std::size_t recvBytes,
              std::size_t reportBytes, Request** request) {
    *request = nullptr;
    bool sendInStaging = false;
    bool recvInStaging = false;
    CGX_TRY(regions_.inStaging(send, sendBytes, &sendInStaging));
    CGX_TRY(regions_.inStaging(recv, recvBytes, &recvInStaging));
    // In place the output stands where the input was.
    return engine_.post(shape, send, recv, sendInStaging && send != recv, reportBytes, request);
  }

  void stopUsing(const Region& region) {
    if (!engine_.uses(region.data, region.bytes)) return;
    engine_.fail(Status::invalid("memory was deregistered while an operation on it was running"));
    engine_.drain();
  }

  // The pool outlives the engine: declared before it.
  WorkerPool::Lease workers_;
  const codec::Kernels* kernels_;
  Regions regions_;
  mutable Engine engine_;
};

std::uint32_t configurationOf(const Limits& limits) {
  std::uint64_t h = 0x9e3779b97f4a7c15;
  for (const std::uint64_t v :
       {static_cast<std::uint64_t>(limits.ranks), static_cast<std::uint64_t>(limits.blockElements),
        static_cast<std::uint64_t>(limits.onePhaseBytes)}) {
    h = (h ^ v) * 0xff51afd7ed558ccd;
    h ^= h >> 32;
  }
  return static_cast<std::uint32_t>(h);
}

/// What this communicator will do, for the log. NCCL gives collnet one rank a node, or a few with NVLink switches.
std::string startLine(const ConnectSpec& spec, const EngineOptions& options, int threads) {
  const Settings& settings = options.settings;
  const auto devices = spec.transport->devices();
  const auto device = static_cast<std::size_t>(spec.device);
  std::string codes = "exact";
  if (settings.bits != codec::kExactBits) {
    const bool stochastic = settings.rounding == Rounding::Stochastic;
    codes = std::to_string(settings.bits) + " bits, " + (stochastic ? "stochastic" : "nearest") + " rounding";
  }
  return "communicator " + std::to_string(options.communicator) + ": rank " + std::to_string(options.rank) + " of " +
         std::to_string(options.limits.ranks) + " collnet ranks" +
         (settings.worldRanks > 0 ? " (job of " + std::to_string(settings.worldRanks) + ")" : "") + ", " + codes +
         ", " + std::to_string(options.limits.blockElements) + " elements a block, " + options.kernels->name +
         " codec, " + std::to_string(threads) + " codec threads, host memory, device " +
         (device < devices.size() ? devices[device].name : std::to_string(spec.device));
}

}  // namespace

Result<std::unique_ptr<Communicator>> connect(const ConnectSpec& given) {
  ConnectSpec spec = given;
  Limits limits;
  limits.ranks = static_cast<int>(spec.handles.size());
  limits.blockElements = chooseBlockElements(spec.settings, limits.ranks);
  limits.onePhaseBytes = spec.settings.onePhaseBytes;
  // Local reasons against it are told to the others, so that nobody is left waiting.
  const std::string self = "rank " + std::to_string(spec.rank);
  spec.problem = std::move(spec.problem).within(self);
  const auto refuse = [&](Status why) {
    if (!spec.problem.failed()) spec.problem = std::move(why).within(self);
  };
  if (limits.ranks < 1 || spec.rank < 0 || spec.rank >= limits.ranks) {
    return Status::invalid(self + " of " + std::to_string(limits.ranks) + " ranks");
  }
  if (limits.ranks > spec.settings.maxRanks) {
    refuse(Status::invalid(std::to_string(limits.ranks) +
                           " ranks are more than CGX_MAX_RANKS = " + std::to_string(spec.settings.maxRanks)));
  }
  EngineOptions options;
  auto kernels = codec::select(spec.settings.simd);
  if (kernels.ok()) {
    options.kernels = kernels.value();
  } else {
    refuse(std::move(kernels).status());
  }
  auto workers = WorkerPool::acquire(spec.settings);
  if (!workers.ok()) refuse(workers.status());
  // Before the others hear a yes: without staging this rank must not fail alone.
  options.staging = std::make_shared<Mapping>();
  if (Status staging = options.staging->create(stagingFor(limits)); !staging.ok()) refuse(std::move(staging));

  auto mesh = connectMesh(spec, limits);
  if (!mesh.ok()) return std::move(mesh).status();
  options.rank = spec.rank;
  options.limits = limits;
  options.settings = spec.settings;
  if (spec.exact) options.settings.bits = codec::kExactBits;
  options.communicator = mesh->ordinal;
  options.configuration = configurationOf(limits);
  options.executor = &*workers.value();
  const std::string line = startLine(spec, options, workers.value()->threads());
  auto communicator =
      std::make_unique<MeshCommunicator>(std::move(workers).value(), std::move(options), std::move(mesh).value());
  CGX_TRY(communicator->start());
  CGX_LOG(Info, Coll, "%s", line.c_str());
  return std::unique_ptr<Communicator>(std::move(communicator));
}

}  // namespace cgx::collective
