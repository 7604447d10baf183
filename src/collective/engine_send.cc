// The sending half: contributions are encoded into a window of slots a peer and posted in order; results follow their
// reduction.
#include <cstring>
#include <string>

#include "engine.h"

namespace cgx::collective {
namespace {

// Contributions and results match apart, so that neither waits for the other.
constexpr int kContributionTag = 1;
constexpr int kResultTag = 2;

}  // namespace

// Gives free slots to the next contributions for `rank`, in the order of operations and blocks. Under the mutex.
void Engine::produce(Peer& peer, int rank) {
  while (running(peer.next.operation)) {
    Request& operation = operationAt(peer.next.operation);
    const std::size_t blocks = operation.plan.hasContributions() ? operation.plan.blocks(rank) : 0;
    if (peer.next.block >= blocks) {
      peer.next = {peer.next.operation + 1, 0};
      continue;
    }
    OutSlot& slot = peer.out[peer.outTaken % kWindow];
    if (!operation.scanned || slot.state != SlotState::Free || failed_) return;
    slot.state = SlotState::Busy;
    slot.operation = &operation;
    slot.block = peer.next.block++;
    ++peer.outTaken;
    postJob(slot.job, Urgency::Normal);
  }
}

void Engine::runEncode(Job* job) noexcept {
  OutSlot& slot = JobOf<OutSlot>::of(job);
  Engine& self = *slot.engine;
  Request& operation = *slot.operation;
  Lock lock(self.mutex_);
  if (self.failed_) return self.leave(lock);
  lock.unlock();

  const auto start = transport::Clock::now();
  const Range range = operation.plan.block(slot.peer, slot.block);
  const codec::Encoded encoded =
      self.encodeBlock(operation, range, 1, operation.exact, slot.memory + sizeof(wire::MessageHeader));
  self.fillHeader(slot.memory, operation, 1, slot.peer, slot.block, range, encoded, operation.exact);
  const Inspection inspection = self.inspect(operation, range, encoded);
  // In two phases nobody else reads this block; in one phase every peer's contribution does, and the reduction clears.
  if (!operation.plan.onePhase()) self.clearAfterUse(operation, range);
  const std::uint64_t took = nanosecondsSince(start);

  lock.lock();
  slot.bytes = sizeof(wire::MessageHeader) + encoded.bytes;
  slot.state = SlotState::Ready;
  self.counters_.encodeNs += took;
  self.countEncoded(operation, range, encoded, inspection);
  if (--operation.encodesLeft == 0 && operation.plan.onePhase()) self.startReadyReductions();
  lock.unlock();
  self.pump(slot.peer);
  self.leave(lock);
}

codec::Noise Engine::noise(const Request& operation, int phase, Range range) const {
  return {codec::noiseKey(options_.settings.seed, options_.communicator, operation.number,
                          static_cast<std::uint32_t>(options_.rank), static_cast<std::uint32_t>(phase)),
          range.first};
}

codec::EncodeSpec Engine::specOf(const Request& operation, Range range, int phase, bool exact) const {
  codec::EncodeSpec spec;
  spec.bits = exact ? codec::kExactBits : options_.settings.bits;
  spec.rounding = options_.settings.rounding;
  spec.noise = noise(operation, phase, range);
  return spec;
}

codec::Encoded Engine::encodeBlock(const Request& operation, Range range, int phase, bool exact, std::byte* payload) {
  const Shape& shape = operation.plan.shape();
  return options_.kernels->encode(specOf(operation, range, phase, exact), shape.dtype,
                                  operation.send + range.first * shape.elementBytes(), range.elements, payload);
}

// While the block is still in the cache, and before it is cleared.
Inspection Engine::inspect(const Request& operation, Range range, const codec::Encoded& encoded) const noexcept {
  Inspection inspection;
  if (operation.exact) return inspection;
  const Shape& shape = operation.plan.shape();
  const std::byte* values = operation.send + range.first * shape.elementBytes();
  if (encoded.rawTiles != 0) inspection.nonFiniteTiles = nonFiniteTiles(shape.dtype, values, range.elements);
  if (encoded.form == codec::Form::Tiles)
    inspection.error = sampleError(*options_.kernels, specOf(operation, range, 1, false), shape.dtype, operation.number,
                                   range, values);
  return inspection;
}

void Engine::fillHeader(std::byte* message, const Request& operation, int phase, int owner, std::size_t block,
                        Range range, const codec::Encoded& encoded, bool exact) {
  const Shape& shape = operation.plan.shape();
  wire::MessageHeader header;
  header.phase = static_cast<std::uint8_t>(phase);
  header.kind = static_cast<std::uint8_t>(shape.kind);
  header.dtype = shape.kind == Kind::AllGather ? wire::MessageHeader::kUntyped : static_cast<std::uint8_t>(shape.dtype);
  header.form = static_cast<std::uint8_t>(encoded.form);
  header.flags = exact ? wire::MessageHeader::kExact : std::uint8_t{0};
  header.source = static_cast<std::uint16_t>(options_.rank);
  header.owner = static_cast<std::uint16_t>(owner);
  header.operation = operation.number;
  header.count = shape.count;
  header.first = range.first;
  header.elements = static_cast<std::uint32_t>(range.elements);
  header.payloadBytes = static_cast<std::uint32_t>(encoded.bytes);
  header.configuration = options_.configuration;
  header.block = static_cast<std::uint32_t>(block);
  std::memcpy(message, &header, sizeof header);
}

void Engine::clearAfterUse(const Request& operation, Range range) {
  if (!operation.clearSend) return;
  const std::size_t width = operation.plan.shape().elementBytes();
  // The memory is the host's and writable (it filled it); NCCL hands it over as a mutable pointer.
  options_.kernels->clear(const_cast<std::byte*>(operation.send) + range.first * width, range.elements * width);
}

// Posts whatever is ready for `rank`, in order. One thread at a time does; another one that comes meanwhile asks it to
// look again.
void Engine::pump(int rank) {
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  Lock lock(mutex_);
  if (std::exchange(peer.pumping, true)) {
    peer.again = true;
    return;
  }
  for (;;) {
    peer.again = false;
    const Step step = nextStep(peer, rank);
    if (step.what == Step::What::Nothing) {
      if (peer.again) continue;
      break;
    }
    ++inside_;  // the post may run its completion inside, and close() must wait for this thread
    lock.unlock();
    const Status posted = perform(step, peer);
    lock.lock();
    if (posted.isPending()) failLocked(Status::internal("the transport has less room than it promised"));
    if (posted.failed()) {
      lose(peer, posted);
      if (step.what == Step::What::SendResult) resultSent(step.reduction->sends[static_cast<std::size_t>(rank)]);
      if (step.what == Step::What::SendContribution) contributionSent(*step.out);
    }
    leave(lock);
  }
  peer.pumping = false;
}

Engine::Step Engine::nextStep(Peer& peer, int rank) {
  if (failed_) return {};
  Step step;
  if (peer.resultsPosted < resultsTaken_) {
    Reduction* reduction = byResult_[peer.resultsPosted % kWindow];
    if (reduction->state == SlotState::Ready) {
      ++peer.resultsPosted;
      ResultSend& send = reduction->sends[static_cast<std::size_t>(rank)];
      send.underWay = true;
      send.given = transport::Clock::now();
      step.what = Step::What::SendResult;
      step.reduction = reduction;
      countMessage(*reduction->operation, reduction->bytes);
      return step;
    }
  }
  for (const bool result : {true, false}) {
    if (peer.ended.failed()) break;
    std::uint64_t& posted = result ? peer.resultReceives : peer.contributionReceives;
    InSlot& slot = (result ? peer.results : peer.contributions)[posted % kWindow];
    if (slot.state != SlotState::Free) continue;
    slot.state = SlotState::InFlight;
    slot.sequence = posted++;
    step.what = Step::What::Receive;
    step.in = &slot;
    return step;
  }
  OutSlot& out = peer.out[peer.outPosted % kWindow];
  if (peer.outPosted < peer.outTaken && out.state == SlotState::Ready) {
    ++peer.outPosted;
    out.state = SlotState::InFlight;
    step.what = Step::What::SendContribution;
    step.out = &out;
    out.given = transport::Clock::now();
    countMessage(*out.operation, out.bytes);
  }
  return step;
}

Status Engine::perform(const Step& step, Peer& peer) {
  switch (step.what) {
    case Step::What::Nothing:
      return {};
    case Step::What::SendResult: {
      const auto index = static_cast<std::size_t>(&peer - peers_.data());
      return peer.connection->send({step.reduction->memory, step.reduction->bytes}, kResultTag,
                                   transport::Priority::High, step.reduction->sends[index].completion);
    }
    case Step::What::SendContribution:
      return peer.connection->send({step.out->memory, step.out->bytes}, kContributionTag, transport::Priority::Normal,
                                   step.out->completion);
    case Step::What::Receive: {
      const std::size_t room = slotBytes(options_.limits.blockElements);
      const transport::Slot slot{{step.in->memory, room}, step.in->result ? kResultTag : kContributionTag};
      return peer.connection->recv({&slot, 1}, step.in->completion);
    }
  }
  return {};
}

// It has left, or nobody is there any more to read it. An operation is done only when all its messages are, so that a
// rank that is done may close at once. Under the mutex.
void Engine::contributionSent(OutSlot& slot) {
  if (failed_) return;
  slot.state = SlotState::Free;
  finishUnit(*slot.operation);
  produce(peers_[static_cast<std::size_t>(slot.peer)], slot.peer);
}

void Engine::resultSent(ResultSend& send) {
  Reduction& reduction = *send.reduction;
  send.underWay = false;
  if (failed_ || --reduction.sendsLeft > 0) return;
  reduction.state = SlotState::Free;
  finishUnit(*reduction.operation);
  createReductions();
}

void Engine::onSent(transport::Completion* completion, const Status& status) noexcept {
  OutSlot& slot = CompletionOf<OutSlot>::of(completion);
  Engine& self = *slot.engine;
  Lock lock(self.mutex_);
  ++self.inside_;
  self.counters_.wireNs += nanosecondsSince(slot.given);
  if (!status.ok()) self.lose(self.peers_[static_cast<std::size_t>(slot.peer)], status);
  self.contributionSent(slot);
  self.leave(lock);
}

void Engine::onResultSent(transport::Completion* completion, const Status& status) noexcept {
  ResultSend& send = CompletionOf<ResultSend>::of(completion);
  Engine& self = *send.reduction->engine;
  Lock lock(self.mutex_);
  ++self.inside_;
  self.counters_.wireNs += nanosecondsSince(send.given);
  if (!status.ok()) self.lose(self.peers_[static_cast<std::size_t>(send.peer)], status);
  self.resultSent(send);
  self.leave(lock);
}

}  // namespace cgx::collective
