#include "session.h"

#include <sched.h>
#include <sys/mman.h>

#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <random>
#include <thread>
#include <utility>
#include <vector>

namespace cgx::tool {
namespace {

using Clock = std::chrono::steady_clock;
// Polls that only give up the time slice; then it is a long operation, and the plugin's workers need the core.
constexpr int kEagerPolls = 300;
constexpr auto kPollPause = std::chrono::microseconds(20);
constexpr auto kLookAround =
    std::chrono::milliseconds(100);  // how often a waiting rank looks whether another has failed

const char* logTool = "cgx";
int logRank = -1;
bool logVerbose = false;

[[gnu::format(printf, 5, 6)]] void logLine(ncclDebugLogLevel level, unsigned long, const char*, int, const char* format,
                                           ...) {
  if (level > NCCL_LOG_WARN && !logVerbose) return;
  char text[2048];
  std::va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  if (logRank < 0)
    std::fprintf(stderr, "%s: plugin: %s\n", logTool, text);
  else
    std::fprintf(stderr, "%s: rank %d: plugin: %s\n", logTool, logRank, text);
}

ncclDataType_t ncclTypeOf(codec::DType dtype) {
  switch (dtype) {
    case codec::DType::F32:
      return ncclFloat32;
    case codec::DType::F16:
      return ncclFloat16;
    case codec::DType::BF16:
      return ncclBfloat16;
  }
  return ncclFloat32;
}

Status called(const char* what, ncclResult_t result) {
  if (result == ncclSuccess) return {};
  return {Code::Remote, std::string("the plugin's ") + what + " returned " + resultText(result)};
}

/// Waits politely: the ranks of one machine share its cores with the plugin's workers.
class Patience {
 public:
  explicit Patience(Rendezvous& rendezvous) : rendezvous_(rendezvous) {}

  Status wait() {
    if (++polls_ < kEagerPolls) {
      ::sched_yield();
    } else {
      std::this_thread::sleep_for(kPollPause);
    }
    if (polls_ % 256 != 0) return {};
    const auto now = Clock::now();
    if (now - looked_ < kLookAround) return {};
    looked_ = now;
    return rendezvous_.check();
  }

 private:
  Rendezvous& rendezvous_;
  int polls_ = 0;
  Clock::time_point looked_ = Clock::now();
};

std::uint64_t drawCommId() {
  std::random_device device;
  return (std::uint64_t{device()} << 32) | device();
}

}  // namespace

void setPluginLog(const char* tool, int rank, bool verbose) {
  logTool = tool;
  logRank = rank;
  logVerbose = verbose;
}

ncclDebugLogger_t pluginLogger() { return logLine; }

Result<std::unique_ptr<Session>> Session::open(const std::string& pluginPath, Rendezvous& rendezvous, int rank,
                                               int ranks) {
  Result<PluginLibrary> library = PluginLibrary::open(pluginPath);
  if (!library.ok()) return library.status();
  std::unique_ptr<Session> session(new Session(std::move(library).value(), rendezvous));
  const std::uint64_t mine = drawCommId();
  Result<std::vector<std::string>> ids = rendezvous.allGather({reinterpret_cast<const char*>(&mine), sizeof mine});
  if (!ids.ok()) return ids.status();
  std::uint64_t commId = 0;
  std::memcpy(&commId, ids->front().data(), std::min(sizeof commId, ids->front().size()));
  if (Status status = session->start(commId); !status.ok()) return status;
  if (Status status = session->connect(rank, ranks); !status.ok()) return status;
  return session;
}

Status Session::start(std::uint64_t commId) {
  net_ = library_.net();
  coll_ = library_.collNet();
  if (net_ == nullptr || coll_ == nullptr)
    return Status::invalid(library_.path() + " exports no " +
                           (net_ == nullptr ? "ncclNetPlugin_v12" : "ncclCollNetPlugin_v12") +
                           ", which cgx perf drives; cgx info lists what it exports");
  ncclNetCommConfig_t config{NCCL_NET_TRAFFIC_CLASS_UNDEF};
  CGX_TRY(called("net init", net_->init(&netContext_, commId, &config, logLine, nullptr)));
  netStarted_ = true;
  CGX_TRY(called("collnet init", coll_->init(&collContext_, commId, logLine)));
  collStarted_ = true;
  int devices = 0;
  CGX_TRY(called("devices", coll_->devices(&devices)));
  if (devices < 1) return Status(Code::Unsupported, "the plugin offers no collnet device");
  ncclNetProperties_v12_t properties{};
  CGX_TRY(called("getProperties", coll_->getProperties(0, &properties)));
  device_ = properties.name != nullptr ? properties.name : "?";
  return {};
}

Status Session::connect(int rank, int ranks) {
  std::array<char, NCCL_NET_HANDLE_MAXSIZE> handle{};
  void* listener = nullptr;
  CGX_TRY(called("listen", coll_->listen(collContext_, 0, handle.data(), &listener)));
  Result<std::vector<std::string>> handles = rendezvous_.allGather({handle.data(), handle.size()});
  Status status = handles.ok() ? Status() : handles.status();
  if (status.ok()) {
    std::vector<void*> pointers;
    for (std::string& one : handles.value()) {
      one.resize(handle.size());
      pointers.push_back(one.data());
    }
    status = called("connect", coll_->connect(pointers.data(), ranks, rank, listener, &comm_));
    if (status.ok() && comm_ == nullptr) status = Status::internal("the plugin's connect returned no communicator");
  }
  (void)coll_->closeListen(listener);
  return status;
}

Session::~Session() {
  release(&send_);
  release(&recv_);
  if (comm_ != nullptr) (void)coll_->closeColl(comm_);
  if (collStarted_) (void)coll_->finalize(collContext_);
  if (netStarted_) (void)net_->finalize(netContext_);
}

Status Session::prepareBuffers(std::size_t bytes) {
  release(&send_);
  release(&recv_);
  CGX_TRY(allocate(&send_, bytes));
  return allocate(&recv_, bytes);
}

Status Session::allocate(Buffer* buffer, std::size_t bytes) {
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (memory == MAP_FAILED)
    return Status::system("no memory for a buffer of " + std::to_string(bytes) + " bytes", errno);
  *buffer = {static_cast<std::byte*>(memory), bytes, nullptr};
  return called("regMr", coll_->regMr(comm_, memory, bytes, NCCL_PTR_HOST, &buffer->registration));
}

void Session::release(Buffer* buffer) {
  if (buffer->registration != nullptr) (void)coll_->deregMr(comm_, buffer->registration);
  if (buffer->memory != nullptr) ::munmap(buffer->memory, buffer->bytes);
  *buffer = {};
}

Status Session::allReduce(std::size_t count, codec::DType dtype) {
  const std::size_t bytes = count * codec::bytesOf(dtype);
  void* request = nullptr;
  Patience patience(rendezvous_);
  for (;;) {
    CGX_TRY(called("iallreduce", coll_->iallreduce(comm_, send_.memory, recv_.memory, count, ncclTypeOf(dtype), ncclSum,
                                                   send_.registration, recv_.registration, &request)));
    if (request != nullptr) break;
    CGX_TRY(patience.wait());
  }
  for (;;) {
    int done = 0;
    int size = 0;
    CGX_TRY(called("test", coll_->test(request, &done, &size)));
    if (done == 0) {
      CGX_TRY(patience.wait());
      continue;
    }
    // The ABI's size is an int: operations of 2 GiB and more cannot be told in it.
    if (bytes <= 0x7fffffff && size != static_cast<int>(bytes))
      return Status::internal("the plugin's test reported " + std::to_string(size) + " bytes for an operation of " +
                              std::to_string(bytes));
    return {};
  }
}

std::optional<CgxCounters> Session::counters() const {
  const CgxCountersFunction read = library_.counters();
  CgxCounters counters{};
  if (read == nullptr || read(comm_, &counters) != 0) return std::nullopt;
  return counters;
}

}  // namespace cgx::tool
