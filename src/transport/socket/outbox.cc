// Builds frame headers; the only place that writes them.
#include "transport/socket/outbox.h"

#include <algorithm>
#include <cstring>

#include "transport/checksum.h"

namespace cgx::transport::socket {

Outbox::Item& Outbox::append(wire::Frame& frame, std::span<const std::byte> inlined,
                             std::span<const std::byte> payload) noexcept {
  frame.magic = wire::kFrameMagic;
  frame.length = static_cast<std::uint32_t>(inlined.size() + payload.size());
  frame.checksum = headChecksum(frame);
  Item& item = frames_[count_++];
  std::memcpy(item.head.data(), &frame, sizeof frame);
  if (!inlined.empty()) std::memcpy(item.head.data() + sizeof frame, inlined.data(), inlined.size());
  item.headBytes = sizeof frame + inlined.size();
  item.done = 0;
  item.payload = payload;
  item.isData = false;
  bytes_ += item.bytes();
  return item;
}

void Outbox::addPosted(std::uint64_t receive, std::span<const wire::PostedSlot> slots) noexcept {
  const auto bytes = std::as_bytes(slots);
  wire::Frame frame{};
  frame.type = static_cast<std::uint8_t>(wire::FrameType::Posted);
  frame.flags = wire::kFlagChecksum;
  frame.receive = receive;
  frame.payloadChecksum = checksumOf(bytes);
  append(frame, bytes, {});
}

void Outbox::addData(const Chunk& chunk, bool checksum) noexcept {
  wire::Frame frame{};
  frame.type = static_cast<std::uint8_t>(wire::FrameType::Data);
  frame.slot = chunk.slot;
  frame.receive = chunk.receive;
  frame.offset = chunk.offset;
  frame.total = chunk.total;
  if (checksum && !chunk.bytes.empty()) {
    frame.flags = wire::kFlagChecksum;
    frame.payloadChecksum = checksumOf(chunk.bytes);
  }
  Item& item = append(frame, {}, chunk.bytes);
  item.chunk = chunk;
  item.isData = true;
}

void Outbox::addHeartbeat() noexcept {
  wire::Frame frame{};
  frame.type = static_cast<std::uint8_t>(wire::FrameType::Heartbeat);
  append(frame, {}, {});
}

void Outbox::addFarewell(const Farewell& farewell) noexcept {
  const std::span text(farewell.text.data(), std::min(farewell.text.size(), wire::kMaxTextBytes));
  wire::Frame frame{};
  frame.type = static_cast<std::uint8_t>(farewell.type);
  if (farewell.type == wire::FrameType::TooLong) {
    frame.receive = farewell.misfit.receive;
    frame.slot = farewell.misfit.slot;
    frame.total = farewell.misfit.total;
    append(frame, {}, {});
    return;
  }
  frame.flags = wire::kFlagChecksum;
  frame.payloadChecksum = checksumOf(std::as_bytes(text));
  append(frame, {}, std::as_bytes(text));
}

std::size_t Outbox::gather(std::span<iovec, 2 * kFrames> into) const noexcept {
  std::size_t used = 0;
  const auto add = [&](const std::byte* data, std::size_t bytes) {
    // sendmsg only reads; iovec has one form for both directions.
    if (bytes > 0) into[used++] = {const_cast<std::byte*>(data), bytes};
  };
  for (std::size_t i = 0; i < count_; ++i) {
    const Item& item = frames_[i];
    const std::size_t headDone = std::min(item.done, item.headBytes);
    const std::size_t payloadDone = item.done - headDone;
    add(item.head.data() + headDone, item.headBytes - headDone);
    add(item.payload.data() + payloadDone, item.payload.size() - payloadDone);
  }
  return used;
}

}  // namespace cgx::transport::socket
