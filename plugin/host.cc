// What the process shares under both halves of the plugin, and its end when the library is unloaded.
#include "plugin/host.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <utility>
#include <vector>

#include "cgx/log.h"
#include "cgx/topology.h"

namespace cgx::plugin {
namespace {

// Trivially destructible on purpose: other threads may still run while exit() runs destructors.
std::mutex attachMutex;
std::atomic<Host*> current{nullptr};
pid_t owner = 0;  // the process that made the Host; a forked child must not tear it down
std::atomic<ncclDebugLogger_t> logger{nullptr};

constexpr int kLateLines = 8;  // enough to name every slow neighbour of a rank, few enough to read

void ncclSink(log::Level level, log::Subsys subsys, const char* file, int line, const char* message) noexcept {
  const ncclDebugLogger_t target = logger.load();
  if (target == nullptr) return;
  unsigned long flags = NCCL_NET;
  switch (subsys) {
    case log::Subsys::Init:
      flags = NCCL_INIT | NCCL_NET;
      break;
    case log::Subsys::Env:
      flags = NCCL_ENV | NCCL_NET;
      break;
    case log::Subsys::Coll:
      flags = NCCL_COLL;
      break;
    case log::Subsys::Net:
    case log::Subsys::Codec:
      break;
  }
  const std::string_view path = file;
  const char* name = file + (path.rfind('/') == std::string_view::npos ? 0 : path.rfind('/') + 1);
  const ncclDebugLogLevel at = level == log::Level::Warn   ? NCCL_LOG_WARN
                               : level == log::Level::Info ? NCCL_LOG_INFO
                                                           : NCCL_LOG_TRACE;
  target(at, flags, name, line, "NET/%s : %s", kPluginName, message);
}

void useLogger(ncclDebugLogger_t log) noexcept {
  if (log == nullptr) return;
  logger.store(log);
  log::setSink(&ncclSink, log::Level::Info);
}

}  // namespace

Host::Host(Settings settings, Status problem, Activation activation, std::unique_ptr<transport::Transport> transport)
    : settings_(std::move(settings)),
      problem_(std::move(problem)),
      activation_(std::move(activation)),
      transport_(std::move(transport)),
      dialer_(*transport_, settings_),
      statistics_(settings_) {}

Result<std::unique_ptr<Host>> Host::create(ncclDebugLogger_t log, Caller caller) {
  Settings settings;
  std::vector<std::string> unknown;
  Status problem = loadEnvironment(settings, &unknown);
  if (problem.failed()) CGX_LOG(Warn, Env, "%s; compression is off", problem.text().c_str());
  for (const std::string& line : unknown) CGX_LOG(Warn, Env, "%s", line.c_str());

  auto transport = transport::createSocket(settings);
  if (!transport.ok()) return std::move(transport).status();
  if (transport->get()->devices().empty()) return Status::internal("the socket transport has no device");
  std::vector<std::string> pciPaths;
  for (const transport::Device& device : transport->get()->devices()) pciPaths.push_back(device.pciPath);
  if (settings.affinity == Affinity::Near) settings.nearCpus = topology::cpusNear(pciPaths);
  // Last, since an init that fails must not have changed the process's environment.
  Activation activation;
  activation.nccl = callingNccl(log, caller);
  activation.decision = decideHere(settings, activation.nccl);
  activation.collnet = activate(activation.decision, activation.nccl);
  return std::unique_ptr<Host>(
      new Host(std::move(settings), std::move(problem), std::move(activation), std::move(transport).value()));
}

Result<Host*> Host::attach(ncclDebugLogger_t log, Caller caller) {
  const std::lock_guard lock(attachMutex);
  useLogger(log);
  Host* host = current.load();
  if (host == nullptr) {
    auto made = create(log, caller);
    if (!made.ok()) return std::move(made).status();
    host = std::move(made).value().release();
    owner = getpid();
    current.store(host);
  }
  host->banner();
  return host;
}

Result<Host*> Host::get() {
  Host* host = current.load();
  if (host != nullptr) return host;
  return attach(nullptr, Caller::Unclear);
}

// One line a process, and only once there is somebody to read it.
void Host::banner() {
  if (announced_ || !log::enabled(log::Level::Info)) return;
  announced_ = true;
  std::string devices;
  for (const transport::Device& device : transport_->devices()) {
    devices += devices.empty() ? "" : ", ";
    devices += device.name + " " + device.address + " " + std::to_string(device.speedMbps) + " Mb/s";
  }
  const std::string compression = !named()                      ? "off (not named in NCCL_NET_PLUGIN)"
                                  : problem_.failed()           ? "off (bad setting)"
                                  : settings_.mode == Mode::Off ? "off (CGX_MODE=off)"
                                  : settings_.bits > 8 ? "off (CGX_BITS=" + std::to_string(settings_.bits) + ")"
                                                       : std::to_string(settings_.bits) + " bits";
  CGX_LOG(Info, Init, "cgx %s, net and collnet ABI v6-v12; %zu device(s): %s; compression: %s", CGX_VERSION,
          transport_->devices().size(), devices.c_str(), compression.c_str());
  saySettings();
  for (const std::string& line : activation_.decision.warnings) CGX_LOG(Warn, Env, "%s", line.c_str());
  if (named() && problem_.ok() && settings_.mode != Mode::Off && settings_.bits <= 8) warnOfCollnet();
}

// What the user set is in force, and under which name; with a bad one among them nothing is, and a WARN has said so.
void Host::saySettings() const {
  if (problem_.failed()) return;
  for (const SettingRow& row : describe(settings_, environment)) {
    if (!row.origin.starts_with("CGX_")) continue;
    CGX_LOG(Info, Env, "%s=%s%s%s", row.name.c_str(), row.value.c_str(), row.origin == row.name ? "" : ", set by ",
            row.origin == row.name ? "" : row.origin.c_str());
  }
}

void Host::warnOfCollnet() const {
  if (activation_.collnet.on) return;
  CGX_LOG(Warn, Init, "all-reduces stay uncompressed: %s; %s",
          activation_.collnet.byUser ? "NCCL_COLLNET_ENABLE switches collnet plugins off"
                                     : "NCCL was not told in time to use collnet plugins",
          activation::remedy(activation_.nccl, libraryPath()).c_str());
}

Result<const transport::Device*> Host::device(int dev) const {
  const auto devices = transport_->devices();
  if (dev < 0 || static_cast<std::size_t>(dev) >= devices.size())
    return Status::invalid("device " + std::to_string(dev) + " does not exist, there are " +
                           std::to_string(devices.size()));
  return &devices[static_cast<std::size_t>(dev)];
}

std::uint64_t Host::openContext(Half half, std::uint64_t commId) {
  const std::lock_guard lock(mutex_);
  lastContext_ += 16;  // looks like a pointer, is none
  contexts_.emplace(lastContext_, Context{half, commId});
  return lastContext_;
}

bool Host::hasContext(Half half, std::uint64_t context) {
  const std::lock_guard lock(mutex_);
  const auto it = contexts_.find(context);
  return it != contexts_.end() && it->second.half == half;
}

bool Host::closeContext(Half half, std::uint64_t context) {
  {
    const std::lock_guard lock(mutex_);
    const auto it = contexts_.find(context);
    if (it == contexts_.end() || it->second.half != half) return false;
    contexts_.erase(it);
    std::erase_if(orphans_, [&](const auto& kept) { return kept.first == context; });
  }
  dialer_.dropContext(context);
  return true;
}

void Host::adopt(std::uint64_t context, std::unique_ptr<Orphan> orphan) {
  const std::lock_guard lock(mutex_);
  orphans_.emplace_back(context, std::move(orphan));
}

void Host::release(const Orphan* orphan) noexcept {
  const std::lock_guard lock(mutex_);
  std::erase_if(orphans_, [&](const auto& kept) { return kept.second.get() == orphan; });
}

bool Host::mayReportLate(transport::Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  if (now - lateSince_ >= std::chrono::duration<double>(settings_.lateWarn)) {
    lateSince_ = now;
    lateLines_ = 0;
  }
  return ++lateLines_ <= kLateLines;
}

void Host::abortIfAsked(const Status& why) const noexcept {
  if (!settings_.abortOnError) return;
  // The logger may be off or absent, and this is the last chance to say why the process dies.
  std::fprintf(stderr, "NET/%s : aborting, as CGX_ABORT_ON_ERROR asks: %s\n", kPluginName, why.text().c_str());
  std::abort();
}

// Runs at dlclose and at exit. While NCCL holds objects of ours threads may run and use the Host, so it stays (then the
// process is ending anyhow, or the host program broke its promise); a forked child leaves everything to its parent.
void unload() noexcept {
  Host* host = current.load();
  if (host != nullptr && owner == getpid() && host->live_.load() == 0) {
    current.store(nullptr);
    delete host;
    host = nullptr;
  }
  if (host == nullptr) {
    forgetAnswers();
    log::setSink(nullptr, log::Level::None);
    releaseRuntime();
  }
}

}  // namespace cgx::plugin

namespace {
[[gnu::destructor]] void unloadLibrary() { cgx::plugin::unload(); }
}  // namespace
