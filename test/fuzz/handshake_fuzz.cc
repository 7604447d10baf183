// Whatever a stranger sends to a listener, answers to a dialer, or writes into an established connection: no crash, no
// hang, no write outside posted memory. The first byte of the input chooses which.
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>

#include "support/faulty_stream.h"
#include "transport/checksum.h"
#include "transport/handshake.h"
#include "transport/socket/stream_reader.h"

namespace {

using namespace cgx;
using namespace cgx::transport;

struct Counted : Completion {
  Counted() {
    done = [](Completion* self, const Status&) noexcept { ++static_cast<Counted*>(self)->times; };
  }
  int times = 0;
};

void require(bool condition) {
  if (!condition) std::abort();
}

template <class Machine>
void drive(Machine machine, std::span<const std::byte> input, std::size_t bytesPerCall) {
  Wire in, out;
  in.bytes.assign(input.begin(), input.end());
  in.closed = true;
  FaultyStream stream(in, out, {.bytesPerCall = bytesPerCall});
  for (int i = 0; i < 3; ++i) (void)machine.progress(stream);
  require(out.bytes.size() <= 4096);
}

/// Frames with their magic and checksum made right, so that the checks behind those are reached.
void readFrames(std::span<const std::byte> input, bool mend) {
  int fds[2];
  require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) == 0);
  for (std::size_t at = 0; at < input.size();) {
    wire::Frame frame{};
    const std::size_t n = std::min(sizeof frame, input.size() - at);
    std::memcpy(&frame, input.data() + at, n);
    at += n;
    if (mend) {
      frame.magic = wire::kFrameMagic;
      frame.type = static_cast<std::uint8_t>(frame.type % 6);
      frame.length %= 300;
      frame.flags = 0;
      frame.checksum = headChecksum(frame);
    }
    if (::send(fds[1], &frame, sizeof frame, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) break;
    const std::size_t payload = std::min<std::size_t>({frame.length, 300, input.size() - at});
    if (payload > 0 && ::send(fds[1], input.data() + at, payload, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) break;
    at += payload;
  }
  ::close(fds[1]);

  auto exchange = std::make_unique<socket::Exchange>(1);
  auto reader = std::make_unique<socket::StreamReader>(0);
  std::array<std::array<std::byte, 48>, 3> room;
  for (auto& memory : room) memory.fill(std::byte{0x5a});
  Counted counted;
  const Slot slots[2] = {{std::span(room[0]).first(32), 0}, {std::span(room[1]).first(32), 1}};
  require(exchange->postReceive(slots, counted).ok());
  std::array<wire::PostedSlot, kMaxGroup> posted;
  std::size_t count = 0;
  require(exchange->announce(posted, count).has_value() && count == 2);
  socket::Told told;
  for (int i = 0; i < 1000; ++i) {
    const socket::Reading reading = reader->step(fds[0], true, *exchange, told);
    told.tell({});
    if (reading.what != socket::Reading::What::More) break;
  }
  require(counted.times <= 1);
  for (auto& memory : room) {
    for (std::size_t i = 32; i < memory.size(); ++i) require(memory[i] == std::byte{0x5a});
  }
  ::close(fds[0]);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::span input = std::as_bytes(std::span(data + 1, size - 1));
  const std::size_t bytesPerCall = data[0] & 8 ? 1 : 4096;
  switch (data[0] % 5) {
    case 0:
      drive(AcceptHandshake({}, Role::Net), input, bytesPerCall);
      break;
    case 1:
      drive(DialHandshake({}), input, bytesPerCall);
      break;
    case 2:
      readFrames(input, false);
      break;
    case 3:
      readFrames(input, true);
      break;
    default: {
      Handle handle{};
      std::memcpy(handle.data(), input.data(), std::min(input.size(), handle.size()));
      (void)decodeHandle(handle);
    }
  }
  return 0;
}
