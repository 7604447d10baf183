// A thread that runs what it is given, one thing at a time: NCCL's service and progress threads.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace cgx::host {

class Worker {
 public:
  Worker() : thread_([this] { loop(); }) {}
  ~Worker() {
    wait();
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  /// Starts it; the previous one must have ended.
  void begin(std::function<void()> work) {
    wait();
    {
      const std::lock_guard lock(mutex_);
      work_ = std::move(work);
      busy_ = true;
    }
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !busy_; });
  }
  void run(std::function<void()> work) {
    begin(std::move(work));
    wait();
  }

 private:
  void loop() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return busy_ || stop_; });
      if (stop_) return;
      lock.unlock();
      work_();
      lock.lock();
      busy_ = false;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> work_;
  bool busy_ = false;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace cgx::host
