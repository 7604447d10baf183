// Where work that takes longer than a few microseconds runs: the collective posts jobs, a pool (or a test) runs them.
#pragma once

namespace cgx {

/// A unit of work, embedded in the object that it works on; nothing is allocated to post it.
struct Job {
  /// Runs once for each post, on any thread. Must not block on another job.
  void (*run)(Job* self) noexcept = nullptr;
  Job* next = nullptr;  // the executor's, from post until run
};

/// Urgent: what frees a peer or ends an operation (reduce, decode). Normal: what starts one (encode).
enum class Urgency { Normal, Urgent };

class Executor {
 public:
  virtual ~Executor() = default;
  /// Queues `job`, which must stay alive until it has run. Never blocks for long, never runs it inside the call.
  virtual void post(Job& job, Urgency urgency) noexcept = 0;
};

}  // namespace cgx
