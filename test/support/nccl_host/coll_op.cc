// Cutting, posting and testing of one operation.
#include "support/nccl_host/coll_op.h"

#include <algorithm>
#include <cstring>

namespace cgx::host {
namespace {

constexpr int kSteps = 8;          // NCCL_STEPS
constexpr int kGroupChannels = 8;  // COLLNET_GROUP_NSUBS
constexpr std::size_t kGap = 64;
constexpr std::byte kCanary{0xC7};

std::size_t roundUpDiv(std::size_t a, std::size_t b) { return (a + b - 1) / b; }

/// The part of [begin, end) that lies in [low, high), as (offset, bytes).
std::pair<std::size_t, std::size_t> overlap(std::size_t begin, std::size_t end, std::size_t low, std::size_t high) {
  const std::size_t from = std::max(begin, low);
  const std::size_t to = std::min(end, high);
  return {from, to > from ? to - from : 0};
}

}  // namespace

CollOp::CollOp(CollComm& comm, OpSpec spec, std::uint64_t number)
    : comm_(comm),
      spec_(std::move(spec)),
      number_(number),
      width_(bytesOf(spec_.dtype)),
      perRankBytes_(spec_.count * width_) {
  const std::size_t n = comm_.members().size();
  const std::size_t sendBytes = spec_.op == Op::ReduceScatter ? perRankBytes_ * n : perRankBytes_;
  const std::size_t recvBytes = spec_.op == Op::AllGather ? perRankBytes_ * n : perRankBytes_;
  Board* board = &comm_.rank().board();
  const int rank = comm_.rank().rank();
  // Alternating ends: an overrun of one byte faults with data at the page's end, one in front with data at its start.
  send_ = GuardedBuffer(board, rank, sendBytes, number % 2 == 1);
  if (spec_.buffers != Buffers::RegisteredInPlace) recv_ = GuardedBuffer(board, rank, recvBytes, number % 2 == 1);
  if (!send_.valid() || (spec_.buffers != Buffers::RegisteredInPlace && !recv_.valid())) {
    comm_.rank().report(Violation::HostFailed, "no memory for " + name());
    done_ = failed_ = true;
    return;
  }
  fillInput(spec_.dtype, spec_.fill, spec_.seed, rank, number_, send_.span());
  if (staged()) {
    planStaged();
  } else {
    sendHandle_ = comm_.registerUser(send_.span());
    recvHandle_ = spec_.buffers == Buffers::RegisteredInPlace ? sendHandle_ : comm_.registerUser(recv_.span());
    planRegistered();
    if (spec_.buffers == Buffers::Registered) send_.setReadOnly(true);
  }
  flying_.resize(static_cast<std::size_t>(groups_));
}

CollOp::~CollOp() = default;

std::string CollOp::name() const {
  if (!spec_.key.empty()) return spec_.key;
  static constexpr const char* kOps[] = {"all-reduce", "all-gather", "reduce-scatter"};
  return "operation " + std::to_string(number_) + " (" + kOps[static_cast<int>(spec_.op)] + " of " +
         std::to_string(spec_.count) + " " + nameOf(spec_.dtype) + ", comm " + std::to_string(comm_.options().commId) +
         ")";
}

std::size_t CollOp::inFlight() const {
  std::size_t n = 0;
  for (const auto& group : flying_) n += group.size();
  return n;
}

CollOp::Call CollOp::allReduceCall(std::size_t step, int group, std::size_t groupBytes, std::size_t offset) const {
  const std::size_t slot = (step % kSteps) * comm_.slotStride() +
                           static_cast<std::size_t>(group * kGroupChannels) * comm_.options().chunkBytes;
  Call call;
  call.group = group;
  call.sendOffset = slot;
  call.recvOffset = slot + comm_.stagingBytes() / 2;
  call.callBytes = groupBytes;
  call.userSend = call.userRecv = std::min(offset, perRankBytes_);
  call.validSend = call.validRecv = std::min(groupBytes, perRankBytes_ - call.userSend);
  call.resultBytes = groupBytes;
  return call;
}

CollOp::Call CollOp::windowCall(std::size_t step, int group, std::size_t groupBytes, std::size_t offset) const {
  Call call = allReduceCall(step, group, groupBytes, 0);
  const std::size_t all = perRankBytes_ * comm_.members().size();
  const std::size_t begin = std::min(offset, all);
  const std::size_t end = std::min(offset + groupBytes, all);
  const std::size_t mine = perRankBytes_ * static_cast<std::size_t>(comm_.index());
  const auto [from, bytes] = overlap(begin, end, mine, mine + perRankBytes_);
  call.windowOffset = begin;
  call.callBytes = end - begin;
  call.resultBytes = 0;
  const bool gather = spec_.op == Op::AllGather;
  call.userSend = gather ? (bytes ? from - mine : 0) : begin;
  call.validSend = gather ? bytes : end - begin;
  call.userRecv = gather ? begin : (bytes ? from - mine : 0);
  call.validRecv = gather ? end - begin : bytes;
  return call;
}

void CollOp::planStaged() {
  const auto channels = comm_.options().channels;
  const std::size_t chunk = comm_.options().chunkBytes;
  const std::size_t loop = static_cast<std::size_t>(channels) * chunk;
  groups_ = (channels + kGroupChannels - 1) / kGroupChannels;
  const std::size_t all = spec_.op == Op::AllReduce ? perRankBytes_ : perRankBytes_ * comm_.members().size();
  const std::size_t steps = std::max<std::size_t>(1, roundUpDiv(all, loop));
  for (std::size_t s = 0; s < steps; ++s) {
    for (int g = 0; g < groups_; ++g) {
      const int first = g * kGroupChannels;
      const auto groupBytes = static_cast<std::size_t>(std::min(kGroupChannels, channels - first)) * chunk;
      const std::size_t offset = s * loop + static_cast<std::size_t>(first) * chunk;
      const Call call =
          spec_.op == Op::AllReduce ? allReduceCall(s, g, groupBytes, offset) : windowCall(s, g, groupBytes, offset);
      if (call.callBytes == 0) continue;  // NCCL counts a trivial window as finished
      calls_.push_back(call);
      calls_.back().index = calls_.size() - 1;
    }
  }
  if (calls_.empty()) done_ = true;
}

void CollOp::planRegistered() {
  const std::size_t all = spec_.op == Op::AllReduce ? perRankBytes_ : perRankBytes_ * comm_.members().size();
  const std::size_t most = comm_.props().maxCollBytes / width_ * width_;
  for (std::size_t offset = 0; offset < all || calls_.empty(); offset += most) {
    const std::size_t bytes = std::min(most, all - std::min(offset, all));
    Call call = spec_.op == Op::AllReduce ? allReduceCall(0, 0, bytes, offset) : windowCall(0, 0, bytes, offset);
    call.sendOffset = call.userSend;
    call.recvOffset = call.userRecv;
    call.index = calls_.size();
    calls_.push_back(call);
    if (all == 0) break;
  }
}

void CollOp::fillSlot(const Call& call) {
  if (!staged() || slotFilled_) return;
  slotFilled_ = true;  // a call that was refused is repeated with the same slot; the GPU writes it once
  for (std::byte& b : gapBehind(call)) b = kCanary;
  std::byte* slot = comm_.staging() + call.sendOffset;
  std::memcpy(slot, send_.data() + call.userSend, call.validSend);
  if (spec_.inject && spec_.op == Op::AllReduce && call.callBytes > call.validSend)
    fillInput(spec_.dtype, spec_.padding, spec_.seed + 99, comm_.rank().rank(), number_ * 64 + call.index,
              {slot + call.validSend, call.callBytes - call.validSend});
}

/// The first bytes behind a receive slot that no channel uses; empty where the next group begins at once.
std::span<std::byte> CollOp::gapBehind(const Call& call) const {
  const std::size_t used = static_cast<std::size_t>(comm_.options().channels) * comm_.options().chunkBytes;
  if (!staged() || call.group + 1 < groups_ || used + kGap > comm_.slotStride()) return {};
  return {comm_.staging() + call.recvOffset + std::max(call.callBytes, call.resultBytes), kGap};
}

ncclResult_t CollOp::issue(Call& call) {
  CollNetAbi& coll = comm_.abi();
  std::byte* sendBase = staged() ? comm_.staging() : send_.data();
  std::byte* recvBase = staged()                                      ? comm_.staging()
                        : spec_.buffers == Buffers::RegisteredInPlace ? send_.data()
                                                                      : recv_.data();
  void* sendHandle = staged() ? comm_.sendHandle() : sendHandle_;
  void* recvHandle = staged() ? comm_.recvHandle() : recvHandle_;
  std::byte* send = sendBase + call.sendOffset;
  std::byte* recv = recvBase + call.recvOffset;
  call.request = nullptr;
  switch (spec_.op) {
    case Op::AllReduce:
      return comm_.rank().call("iallreduce", CallKind::Data, [&] {
        return coll.iallreduce(comm_.comm(), send, recv, call.callBytes / width_, spec_.dtype, ncclSum, sendHandle,
                               recvHandle, &call.request);
      });
    case Op::AllGather: {
      const Piece piece{recvHandle, recv, call.callBytes};
      return comm_.rank().call("iallgather", CallKind::Data, [&] {
        return coll.iallgather(comm_.comm(), send, {&piece, 1}, perRankBytes_, call.windowOffset, call.callBytes,
                               sendHandle, &call.request);
      });
    }
    case Op::ReduceScatter: {
      const Piece piece{sendHandle, send, call.callBytes};
      return comm_.rank().call("ireducescatter", CallKind::Data, [&] {
        return coll.ireducescatter(comm_.comm(), {&piece, 1}, recv, perRankBytes_, call.windowOffset, call.callBytes,
                                   spec_.dtype, ncclSum, recvHandle, &call.request);
      });
    }
  }
  return ncclInternalError;
}

bool CollOp::post() {
  if (next_ == calls_.size()) return false;
  Call& call = calls_[next_];
  auto& flying = flying_[static_cast<std::size_t>(call.group)];
  if (flying.size() == kSteps) return false;
  fillSlot(call);
  error_ = issue(call);
  if (error_ != ncclSuccess) {
    failed_ = done_ = true;
    return true;
  }
  if (!call.request) return false;  // "ask me again"
  flying.push_back(call);
  slotFilled_ = false;
  ++next_;
  return true;
}

bool CollOp::testOldest(int group) {
  auto& flying = flying_[static_cast<std::size_t>(group)];
  if (flying.empty()) return false;
  int done = 0;
  int size = -1;
  const Call call = flying.front();
  error_ =
      comm_.rank().call("collnet test", CallKind::Data, [&] { return comm_.abi().test(call.request, &done, &size); });
  if (error_ != ncclSuccess) {
    failed_ = done_ = true;
    return true;
  }
  if (!done) return false;
  complete(call, size);
  flying.pop_front();
  if (++completed_ == calls_.size()) done_ = true;
  return true;
}

void CollOp::complete(const Call& call, int size) {
  if (call.resultBytes > 0 && call.resultBytes <= 0x7FFFFFFF && size != static_cast<int>(call.resultBytes))
    comm_.rank().report(Violation::WrongTestSize, name() + ": a call of " + std::to_string(call.resultBytes) +
                                                      " bytes reported as " + std::to_string(size));
  for (const std::byte b : gapBehind(call)) {
    if (b == kCanary) continue;
    comm_.rank().report(Violation::WritesOutsideBuffer, name() + ": a byte behind the receive slot has changed");
    break;
  }
  if (staged()) std::memcpy(recv_.data() + call.userRecv, comm_.staging() + call.recvOffset, call.validRecv);
}

std::size_t CollOp::postOnly() {
  onProgressThread([this] {
    while (!done_ && post()) {
    }
  });
  return inFlight();
}

bool CollOp::step() {
  if (done_) return false;
  bool moved = post();
  for (int g = 0; g < groups_ && !done_; ++g) moved = testOldest(g) || moved;
  return moved;
}

bool drive(const std::vector<CollOp*>& operations, bool expectErrors) {
  bool good = true;
  if (operations.empty()) return good;
  CollOp& first = *operations.front();
  first.onProgressThread([&] {
    auto moved = Clock::now();
    for (;;) {
      bool any = false;
      bool all = true;
      for (CollOp* op : operations) {
        any = op->step() || any;
        all = all && op->done();
        good = good && !op->failed();
      }
      if (all || !good) break;
      if (any) {
        moved = Clock::now();
      } else if (Seconds(Clock::now() - moved).count() > first.limits().operationSeconds) {
        for (CollOp* op : operations) {
          if (op->done()) continue;
          if (!expectErrors) op->reportStuck();
          op->abandon();
        }
        good = false;
        break;
      } else {
        std::this_thread::yield();
      }
    }
  });
  if (!good && !expectErrors)
    for (CollOp* op : operations) op->reportFailure();
  return good;
}

bool runOperations(CollComm& comm, const std::vector<OpSpec>& operations, std::uint64_t firstNumber) {
  for (std::size_t i = 0; i < operations.size(); ++i) {
    CollOp op(comm, operations[i], firstNumber + i);
    if (!drive({&op})) return false;
    op.finish();
  }
  return true;
}

std::function<void(Rank&)> collOperations(CommOptions options, std::vector<OpSpec> operations, int cycles) {
  return [options, operations, cycles](Rank& rank) {
    for (int i = 0; i < cycles; ++i) {
      CollComm comm(rank, options);
      if (!comm.setUp()) return;
      // Nobody waits for the others before it leaves: a rank that is done closes while its peers still work.
      if (!runOperations(comm, operations, static_cast<std::uint64_t>(i) * 1000000)) return;
    }
  };
}

}  // namespace cgx::host
