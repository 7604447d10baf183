// One communicator of a loaded plugin, driven as NCCL drives collnet: init, devices, listen, connect with swapped
// handles, registered buffers, all-reduces. Knows the ABI's order of calls; knows no input and no table.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "cgx/codec.h"
#include "cgx/observe.h"
#include "cgx/status.h"
#include "plugin_library.h"
#include "rendezvous.h"

namespace cgx::tool {

class Session {
 public:
  /// Collective: all ranks call it. The CGX_* environment must be as the plugin should see it.
  static Result<std::unique_ptr<Session>> open(const std::string& pluginPath, Rendezvous& rendezvous, int rank,
                                               int ranks);
  ~Session();  // close, finalize, unload
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// Page-aligned memory, registered; both live until the session or the next call.
  Status prepareBuffers(std::size_t bytes);
  std::byte* send() const { return send_.memory; }
  std::byte* recv() const { return recv_.memory; }

  /// One whole all-reduce of send() into recv(). Waits for ever for ranks that are alive; looks after the rendezvous
  /// meanwhile.
  Status allReduce(std::size_t count, codec::DType dtype);

  /// Nothing when the plugin does not tell.
  std::optional<CgxCounters> counters() const;

  std::string device() const { return device_; }  // the interface's name

 private:
  struct Buffer {
    std::byte* memory = nullptr;
    std::size_t bytes = 0;
    void* registration = nullptr;
  };

  Session(PluginLibrary library, Rendezvous& rendezvous) : library_(std::move(library)), rendezvous_(rendezvous) {}
  Status start(std::uint64_t commId);
  Status connect(int rank, int ranks);
  Status allocate(Buffer* buffer, std::size_t bytes);
  void release(Buffer* buffer);

  PluginLibrary library_;
  Rendezvous& rendezvous_;
  const ncclNet_v12_t* net_ = nullptr;
  const ncclCollNet_v12_t* coll_ = nullptr;
  void* netContext_ = nullptr;
  void* collContext_ = nullptr;
  bool netStarted_ = false;
  bool collStarted_ = false;
  void* comm_ = nullptr;
  std::string device_;
  Buffer send_;
  Buffer recv_;
};

/// What the plugin logs goes to stderr: warnings always, the rest when `verbose`; each line after `tool` (a literal:
/// "cgx perf") and, unless it is -1, the rank.
void setPluginLog(const char* tool, int rank, bool verbose);
/// The function to hand to a plugin's init.
ncclDebugLogger_t pluginLogger();

}  // namespace cgx::tool
