// The life of the statistics: which communicators there are, when their numbers are said and written. Knows no format
// and no ABI.
#pragma once

#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "cgx/collective.h"
#include "cgx/settings.h"
#include "cgx/transport.h"
#include "statistics/series.h"
#include "statistics/snapshot.h"

namespace cgx::plugin {

/// One a process. Where a file or an interval is set there is a thread while communicators are open; the last close()
/// joins it. Nothing here is called on the data path.
class Statistics {
 public:
  /// `settings` must outlive this.
  explicit Statistics(const Settings& settings) : settings_(settings) {}
  Statistics(const Statistics&) = delete;
  Statistics& operator=(const Statistics&) = delete;
  /// Every communicator must have been closed.
  ~Statistics() = default;

  /// Counts `communicator` until close(id), which must come before its end. Returns the id. In a forked child of who
  /// opened the first one it does nothing, and close() neither: file, locks and thread are the parent's.
  std::uint64_t open(const collective::Communicator& communicator, int rank, int ranks, int bits);
  /// Says what it did, writes the file.
  void close(std::uint64_t id) noexcept;

 private:
  struct Living {
    const collective::Communicator* communicator;
    statistics::Record record;
  };

  bool inForkedChild() const noexcept;
  bool wanted() const noexcept { return !settings_.statsFile.empty() || settings_.statsInterval > 0; }
  void startThread();
  void stopThread() noexcept;
  static void* entry(void* self) noexcept;
  void watch();
  statistics::Snapshot take();
  void sayOpen();
  void writeFile();
  void closeNow(std::uint64_t id);

  const Settings& settings_;
  std::mutex lifeMutex_;  // open and close, one at a time; the thread never takes it
  std::mutex fileMutex_;  // before mutex_: the file written last is the newest
  std::mutex mutex_;
  std::condition_variable wake_;
  // under lifeMutex_
  bool running_ = false;
  pthread_t thread_{};
  // set once, before there is a thread
  std::string host_;
  std::string path_;  // empty: no file
  std::atomic<long> pid_{0};
  int rank_ = 0;
  transport::Clock::time_point start_{};
  // under fileMutex_
  bool warned_ = false;
  // under mutex_
  bool stop_ = false;
  std::uint64_t nextId_ = 0;
  std::vector<Living> living_;
  std::vector<statistics::Record> closed_;  // the first ones
  std::uint64_t unlisted_ = 0;              // that closed_ had no room for
  statistics::Sums closedSums_;             // of all closed ones
  statistics::Series series_;
};

}  // namespace cgx::plugin
