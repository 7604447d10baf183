// One operation on a communicator, driven as NCCL's proxy drives it: cut into whole chunks, slots of staging taken in
// turn from slot 0, up to 8 steps a group of 8 channels in flight, posted in one order, tested oldest first. Or on
// registered memory of the user.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "support/nccl_host/coll_comm.h"

namespace cgx::host {

enum class Op { AllReduce, AllGather, ReduceScatter };

enum class Buffers {
  Staging,     // through the communicator's slots, count rounded up to whole chunks
  Registered,  // the user's own memory, exact count, cut by maxCollBytes only
  RegisteredInPlace,
};

struct OpSpec {
  Op op = Op::AllReduce;
  ncclDataType_t dtype = ncclFloat32;
  std::size_t count = 1000;  // elements; for gather and scatter: of one rank
  Buffers buffers = Buffers::Staging;
  Fill fill = Fill::Normal;
  bool inject = false;  // write `padding` behind the valid data; false: what the slot held before stays, as in NCCL
  Fill padding = Fill::Zeros;
  std::uint64_t seed = 1;
  Bound bound = exactly();
  bool verify = true;    // false: only hash the result
  std::string key = {};  // of the hash; empty: made of the number, type and count
};

class CollOp {
 public:
  /// `number`: the same on all ranks; it chooses the input.
  CollOp(CollComm& comm, OpSpec spec, std::uint64_t number);
  ~CollOp();

  /// On the progress thread. False when nothing moved.
  bool step();
  bool done() const { return done_; }
  bool failed() const { return failed_; }
  ncclResult_t error() const { return error_; }
  std::string name() const;
  std::size_t inFlight() const;

  /// For drive(): where to step, for how long, and what to say when it goes wrong.
  void onProgressThread(const std::function<void()>& work);
  const Limits& limits() const;
  void reportStuck();
  void reportFailure();

  /// Stops for good: an abort. Requests stay untested; finish() then only gives the user's buffers back.
  void abandon() { done_ = failed_ = true; }
  /// Posts, tests nothing, until the plugin refuses, all is posted or NCCL would stop. Gives the number of calls in
  /// flight.
  std::size_t postOnly();

  /// On the application's thread, when done: user buffers deregistered and unmapped, result checked and hashed.
  void finish();

 private:
  struct Call {
    std::size_t index = 0;
    int group = 0;
    void* request = nullptr;
    std::size_t sendOffset = 0;  // in staging or in the send buffer
    std::size_t recvOffset = 0;
    std::size_t callBytes = 0;  // what the plugin is told
    std::size_t validSend = 0;  // bytes of the user's data in it
    std::size_t validRecv = 0;
    std::size_t userSend = 0;  // where they belong in the user's data
    std::size_t userRecv = 0;
    std::size_t windowOffset = 0;  // of gather and scatter
    std::size_t resultBytes = 0;   // what test must say; 0: not checked
  };

  void planStaged();
  void planRegistered();
  Call allReduceCall(std::size_t step, int group, std::size_t groupBytes, std::size_t offset) const;
  Call windowCall(std::size_t step, int group, std::size_t groupBytes, std::size_t offset) const;
  void fillSlot(const Call& call);
  std::span<std::byte> gapBehind(const Call& call) const;
  bool post();
  bool testOldest(int group);
  ncclResult_t issue(Call& call);
  void complete(const Call& call, int size);
  bool staged() const { return spec_.buffers == Buffers::Staging; }
  void checkResult();
  void blame(const Sums& sums, const Misses& misses);

  CollComm& comm_;
  OpSpec spec_;
  std::uint64_t number_;
  std::size_t width_;
  std::size_t perRankBytes_;
  std::vector<Call> calls_;
  std::size_t next_ = 0;     // call to post
  bool slotFilled_ = false;  // of the next call
  std::size_t completed_ = 0;
  int groups_ = 1;
  std::vector<std::deque<Call>> flying_;  // by group
  GuardedBuffer send_;                    // the user's
  GuardedBuffer recv_;
  void* sendHandle_ = nullptr;
  void* recvHandle_ = nullptr;
  std::vector<std::byte> result_;
  bool done_ = false;
  bool failed_ = false;
  ncclResult_t error_ = ncclSuccess;
};

/// Steps all of them in turn on the progress thread of the first one's communicator until they are done, one has failed
/// or the deadline for an operation has passed without any movement. False: an operation failed; `expectErrors` keeps
/// that out of the findings.
bool drive(const std::vector<CollOp*>& operations, bool expectErrors = false);

/// Posts and finishes one after the other. False at the first that fails.
bool runOperations(CollComm& comm, const std::vector<OpSpec>& operations, std::uint64_t firstNumber = 0);

/// The whole life of one communicator as a body for run(), `cycles` times.
std::function<void(Rank&)> collOperations(CommOptions options, std::vector<OpSpec> operations, int cycles = 1);

}  // namespace cgx::host
