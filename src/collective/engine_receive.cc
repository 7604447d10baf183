// The receiving half: messages arrive in posted order, blocks are reduced once every contribution is here, results are
// decoded.
#include <algorithm>
#include <cstring>
#include <string>

#include "engine.h"

namespace cgx::collective {
namespace {

wire::MessageHeader readHeader(const std::byte* message) {
  wire::MessageHeader header;
  std::memcpy(&header, message, sizeof header);
  return header;
}

codec::Payload payloadOf(const std::byte* message) {
  const wire::MessageHeader header = readHeader(message);
  return {static_cast<codec::Form>(header.form), {message + sizeof header, header.payloadBytes}};
}

const char* dtypeName(unsigned dtype) {
  static constexpr const char* kNames[] = {"fp32", "fp16", "bf16", "byte"};
  return dtype < std::size(kNames) ? kNames[dtype] : "unknown";
}

std::string describeCall(unsigned kind, unsigned dtype, std::uint64_t number, std::uint64_t count) {
  return std::string(name(static_cast<Kind>(kind))) + " " + std::to_string(number) + " of " + std::to_string(count) +
         " " + dtypeName(dtype) + " elements";
}

}  // namespace

void Engine::onArrived(transport::Completion* completion, const Status& status) noexcept {
  InSlot& slot = CompletionOf<InSlot>::of(completion);
  Engine& self = *slot.engine;
  Lock lock(self.mutex_);
  ++self.inside_;
  if (!status.ok()) {
    self.lose(self.peers_[static_cast<std::size_t>(slot.peer)], status);
  } else if (!self.failed_) {
    if (const Status arrived = self.arrive(slot); !arrived.ok()) self.failLocked(arrived);
  }
  self.leave(lock);
}

// Structure first, so that nothing later trusts a length: then the message waits for its operation. Under the mutex.
Status Engine::arrive(InSlot& slot) {
  Peer& peer = peers_[static_cast<std::size_t>(slot.peer)];
  const std::size_t bytes = slot.completion.sizes[0];
  const auto broken = [&](const std::string& what) {
    return Status::remote(peer.connection->peer() + " sent " + what);
  };
  if (bytes < sizeof(wire::MessageHeader))
    return broken("a message of " + std::to_string(bytes) + " bytes, less than a header");
  const wire::MessageHeader header = readHeader(slot.memory);
  if (header.magic != wire::MessageHeader::kMagic || header.version != wire::kVersion) {
    return broken("something that is not a message of version " + std::to_string(wire::kVersion));
  }
  if (header.payloadBytes != bytes - sizeof header) {
    return broken("a header that announces " + std::to_string(header.payloadBytes) + " payload bytes before " +
                  std::to_string(bytes - sizeof header));
  }
  if (header.form > static_cast<unsigned>(codec::Form::Raw))
    return broken("unknown form " + std::to_string(header.form));
  slot.state = SlotState::Ready;
  ++(slot.result ? peer.resultsHere : peer.contributionsHere);

  if (slot.result) return startResults(peer, slot.peer);

  Reduction* reduction = byContribution_[slot.sequence % kWindow];
  // No reduction yet: this rank has not come to that operation. The message stays until createReductions() finds it.
  if (reduction == nullptr || reduction->contribution != slot.sequence || reduction->state != SlotState::InFlight)
    return {};
  return takeContribution(*reduction, slot);
}

Status Engine::takeContribution(Reduction& reduction, const InSlot& slot) {
  CGX_TRY(checkHeader(readHeader(slot.memory), *reduction.operation, 1, options_.rank, reduction.block, slot.peer));
  if (--reduction.missing == 0) readyReduction(reduction);
  return {};
}

// A message must be exactly what the own plan expects at this place. Different calls on different ranks are the user's
// error.
Status Engine::checkHeader(const wire::MessageHeader& header, const Request& operation, int phase, int owner,
                           std::size_t block, int source) const {
  const Shape& shape = operation.plan.shape();
  const unsigned dtype =
      shape.kind == Kind::AllGather ? wire::MessageHeader::kUntyped : static_cast<unsigned>(shape.dtype);
  if (header.operation != operation.number || header.count != shape.count || header.dtype != dtype ||
      header.kind != static_cast<unsigned>(shape.kind)) {
    return Status::invalid("rank " + std::to_string(source) + " runs " +
                           describeCall(header.kind, header.dtype, header.operation, header.count) + ", rank " +
                           std::to_string(options_.rank) + " " +
                           describeCall(static_cast<unsigned>(shape.kind), dtype, operation.number, shape.count));
  }
  const Range range = operation.plan.block(owner, block);
  if (header.phase != phase || header.owner != owner || header.source != source || header.block != block ||
      header.first != range.first || header.elements != range.elements ||
      header.configuration != options_.configuration) {
    return Status::remote("rank " + std::to_string(source) + " sent block " + std::to_string(header.block) +
                          " of rank " + std::to_string(header.owner) + "'s piece of operation " +
                          std::to_string(header.operation) + " where block " + std::to_string(block) + " of rank " +
                          std::to_string(owner) + "'s is due");
  }
  return {};
}

// Starts decoding the results of `rank` in the order in which it sent them, as far as their operations have been called
// here. (Only an all-gather's result can be early: every other one contains a contribution of this rank.)
Status Engine::startResults(Peer& peer, int rank) {
  for (;;) {
    InSlot& slot = peer.results[peer.resultsStarted % kWindow];
    if (slot.state != SlotState::Ready || slot.sequence != peer.resultsStarted) return {};
    const wire::MessageHeader header = readHeader(slot.memory);
    if (!running(header.operation)) return {};
    Request& operation = operationAt(header.operation);
    const bool next =
        header.operation == peer.lastResult.operation ? header.block == peer.lastResult.block + 1 : header.block == 0;
    const bool later = peer.resultsStarted == 0 || header.operation >= peer.lastResult.operation;
    if (operation.number != header.operation ||
        operation.state.load(std::memory_order_relaxed) != Request::State::Running || !later ||
        (peer.resultsStarted > 0 && !next) || !operation.plan.hasResults() ||
        header.block >= operation.plan.blocks(rank)) {
      return Status::remote(peer.connection->peer() + " sent block " + std::to_string(header.block) +
                            " of the result of operation " + std::to_string(header.operation) + ", which is not due");
    }
    CGX_TRY(checkHeader(header, operation, 2, rank, header.block, rank));
    peer.lastResult = {header.operation, header.block};
    ++peer.resultsStarted;
    slot.state = SlotState::Busy;
    slot.operation = &operation;
    slot.range = operation.plan.block(rank, header.block);
    postJob(slot.job, Urgency::Urgent);
  }
}

void Engine::runDecode(Job* job) noexcept {
  InSlot& slot = JobOf<InSlot>::of(job);
  Engine& self = *slot.engine;
  Lock lock(self.mutex_);
  if (self.failed_) return self.leave(lock);
  lock.unlock();
  const auto start = transport::Clock::now();
  const Status decoded = self.decodeBlock(slot);
  const std::uint64_t took = nanosecondsSince(start);
  lock.lock();
  self.counters_.decodeNs += took;
  if (!decoded.ok()) {
    self.failLocked(decoded);
    return self.leave(lock);
  }
  slot.state = SlotState::Free;
  self.finishUnit(*slot.operation);
  lock.unlock();
  self.pump(slot.peer);
  self.leave(lock);
}

Status Engine::decodeBlock(InSlot& slot) {
  const Shape& shape = slot.operation->plan.shape();
  std::byte* to = slot.operation->recv + slot.range.first * shape.elementBytes();
  const codec::Payload payload = payloadOf(slot.memory);
  if (shape.kind == Kind::AllGather) {
    if (payload.bytes.size() != slot.range.elements) return badPayload(slot.peer, Status::remote("wrong length"));
    std::memcpy(to, payload.bytes.data(), payload.bytes.size());
    return {};
  }
  if (Status valid = codec::validate(payload, shape.dtype, slot.range.elements); !valid.ok())
    return badPayload(slot.peer, valid);
  options_.kernels->decode(payload, shape.dtype, slot.range.elements, to);
  return {};
}

Status Engine::badPayload(int rank, const Status& why) const {
  return Status::remote("rank " + std::to_string(rank) + " sent a payload that cannot be decoded: " + why.text());
}

// Gives free slots to the next blocks that this rank reduces, in the order of operations and blocks. Under the mutex.
void Engine::createReductions() {
  while (running(nextReduction_.operation) && !failed_) {
    Request& operation = operationAt(nextReduction_.operation);
    if (nextReduction_.block >= operation.plan.blocks(options_.rank)) {
      nextReduction_ = {nextReduction_.operation + 1, 0};
      continue;
    }
    Reduction& reduction = reductions_[reductionsTaken_ % kWindow];
    if (reduction.state != SlotState::Free) return;
    ++reductionsTaken_;
    reduction.state = SlotState::InFlight;
    reduction.operation = &operation;
    reduction.block = nextReduction_.block++;
    reduction.missing = 0;
    reduction.contribution = ~std::uint64_t{0};
    if (operation.plan.hasResults() && ranks_ > 1) byResult_[resultsTaken_++ % kWindow] = &reduction;
    if (operation.plan.hasContributions()) {
      reduction.contribution = contributionsTaken_++;
      reduction.missing = static_cast<std::size_t>(ranks_ - 1);
      byContribution_[reduction.contribution % kWindow] = &reduction;
    }
    if (reduction.missing == 0) {
      readyReduction(reduction);
    } else if (Status taken = takeEarly(reduction); !taken.ok()) {
      failLocked(taken);
    }
  }
}

Status Engine::takeEarly(Reduction& reduction) {
  for (int r = 0; r < ranks_; ++r) {
    if (r == options_.rank) continue;
    const InSlot& slot = peers_[static_cast<std::size_t>(r)].contributions[reduction.contribution % kWindow];
    if (slot.state == SlotState::Ready && slot.sequence == reduction.contribution)
      CGX_TRY(takeContribution(reduction, slot));
  }
  return {};
}

// Every contribution is here; the own one may not be ready yet, then startReadyReductions() comes back. Under the
// mutex.
void Engine::readyReduction(Reduction& reduction) {
  const Request& operation = *reduction.operation;
  if (!operation.scanned || failed_) return;
  // One phase: the reduction may overwrite (in place) and clears what the contributions are encoded from.
  if (operation.plan.onePhase() && operation.encodesLeft > 0) return;
  reduction.state = SlotState::Busy;
  postJob(reduction.job, Urgency::Urgent);
}

void Engine::startReadyReductions() {
  for (Reduction& reduction : reductions_) {
    if (reduction.state == SlotState::InFlight && reduction.missing == 0) readyReduction(reduction);
  }
}

void Engine::runReduce(Job* job) noexcept {
  Reduction& reduction = JobOf<Reduction>::of(job);
  Engine& self = *reduction.engine;
  Request& operation = *reduction.operation;
  Lock lock(self.mutex_);
  if (self.failed_) return self.leave(lock);
  lock.unlock();
  const auto start = transport::Clock::now();
  const Range range = operation.plan.block(self.options_.rank, reduction.block);
  Status done;
  if (operation.plan.shape().kind == Kind::AllGather) {
    self.gatherBlock(reduction, range);
  } else {
    done = self.reduceBlock(reduction, range);
  }
  const std::uint64_t took = nanosecondsSince(start);
  lock.lock();
  self.counters_.reduceNs += took;
  if (!done.ok()) {
    self.failLocked(done);
    return self.leave(lock);
  }
  for (int r = 0; r < self.ranks_; ++r) {
    if (r == self.options_.rank || !operation.plan.hasContributions()) continue;
    self.peers_[static_cast<std::size_t>(r)].contributions[reduction.contribution % kWindow].state = SlotState::Free;
  }
  const bool sends = operation.plan.hasResults() && self.ranks_ > 1;
  if (sends) {
    reduction.sendsLeft = static_cast<std::size_t>(self.ranks_ - 1);
    reduction.state = SlotState::Ready;
  } else {
    self.finishUnit(operation);
    reduction.state = SlotState::Free;
    self.createReductions();
  }
  lock.unlock();
  // Starting behind the own rank spreads the owners' results over the receivers.
  for (int step = 1; step < self.ranks_; ++step) self.pump((self.options_.rank + step) % self.ranks_);
  self.leave(lock);
}

void Engine::gatherBlock(Reduction& reduction, Range range) {
  const Request& operation = *reduction.operation;
  const std::byte* from = operation.send + (range.first - operation.plan.piece(options_.rank).first);
  const codec::Encoded encoded{codec::Form::Raw, range.elements, 0, 0};
  std::memcpy(reduction.memory + sizeof(wire::MessageHeader), from, range.elements);
  if (operation.recv + range.first != from) std::memmove(operation.recv + range.first, from, range.elements);
  fillHeader(reduction.memory, operation, 2, options_.rank, reduction.block, range, encoded, true);
  reduction.bytes = sizeof(wire::MessageHeader) + encoded.bytes;
  if (operation.clearSend) options_.kernels->clear(const_cast<std::byte*>(from), range.elements);
}

// Fills reduction.parts in rank order. *exact: every contribution, the own one included, was exact or zero.
Status Engine::collectParts(Reduction& reduction, Range range, bool* exact) {
  const Request& operation = *reduction.operation;
  const Shape& shape = operation.plan.shape();
  *exact = true;
  for (int r = 0; r < ranks_; ++r) {
    if (r == options_.rank) continue;
    const std::byte* message =
        peers_[static_cast<std::size_t>(r)].contributions[reduction.contribution % kWindow].memory;
    const codec::Payload payload = payloadOf(message);
    if (Status valid = codec::validate(payload, shape.dtype, range.elements); !valid.ok()) return badPayload(r, valid);
    const bool untouched = (readHeader(message).flags & wire::MessageHeader::kExact) != 0;
    *exact &= untouched || payload.form == codec::Form::Zero;
    reduction.parts[static_cast<std::size_t>(r)] = {nullptr, payload};
  }
  codec::Contribution& own = reduction.parts[static_cast<std::size_t>(options_.rank)];
  const std::byte* values = operation.send + range.first * shape.elementBytes();
  own = {values, {}};
  if (operation.plan.onePhase() && !operation.exact) {
    // Every rank must add the same numbers, so the own values count as the others see them.
    const codec::Encoded encoded = encodeBlock(operation, range, 1, false, reduction.scratch);
    own = {nullptr, {encoded.form, {reduction.scratch, encoded.bytes}}};
  }
  *exact = *exact && (operation.exact || options_.kernels->contentElements(shape.dtype, values, range.elements) == 0);
  return {};
}

Status Engine::reduceBlock(Reduction& reduction, Range range) {
  const Request& operation = *reduction.operation;
  const Plan& plan = operation.plan;
  const Shape& shape = plan.shape();
  bool exact = false;
  CGX_TRY(collectParts(reduction, range, &exact));
  codec::EncodeSpec spec;
  spec.bits = exact || !plan.hasResults() ? codec::kExactBits : options_.settings.bits;
  spec.rounding = options_.settings.rounding;
  spec.noise = noise(operation, 2, range);
  const std::size_t skipped = shape.kind == Kind::ReduceScatter ? plan.piece(options_.rank).first : 0;
  std::byte* own = operation.recv + (range.first - skipped) * shape.elementBytes();
  // Where no result is sent the encoded sum is thrown away; only `own` counts then, and kExactBits makes it the exact
  // sum.
  const codec::Encoded encoded = options_.kernels->reduce(spec, shape.dtype, reduction.parts, range.elements,
                                                          reduction.memory + sizeof(wire::MessageHeader), own);
  fillHeader(reduction.memory, operation, 2, options_.rank, reduction.block, range, encoded, exact);
  reduction.bytes = sizeof(wire::MessageHeader) + encoded.bytes;
  clearAfterUse(operation, range);
  return {};
}

}  // namespace cgx::collective
