// Every byte that crosses a link, part 3: what the transports say. Handle, hello, reply, frames.
// The rules of wire.h hold: little-endian, fixed width, naturally aligned, padding explicit and zero.
//
// A dialer opens S streams to the address in the handle and says Hello on each; the listener answers each with Reply.
// Then both sides send frames: a 64-byte header and its payload. The first 16 bytes of Hello and Reply are the same in
// every version.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "cgx/wire.h"

namespace cgx::wire {

static_assert(std::endian::native == std::endian::little, "the structs below are the bytes on the link");

inline constexpr std::uint64_t kHandleMagic = 0x31454c444e484743;  // "CGHNDLE1" as bytes
inline constexpr std::uint64_t kHelloMagic = 0x314f4c4c45484743;   // "CGHELLO1"
inline constexpr std::uint64_t kReplyMagic =
    0x31594c5052454743;                                   // "CGERPLY1"; not the hello's: an echo is not an answer
inline constexpr std::uint32_t kFrameMagic = 0x46584743;  // "CGXF"

inline constexpr std::uint16_t kIpv4 = 4;
inline constexpr std::uint16_t kIpv6 = 6;

/// How to reach a listener. Who holds it may connect: the nonce is the secret.
struct Handle {
  std::uint64_t magic;                   //   0  kHandleMagic
  std::uint16_t version;                 //   8  kVersion
  std::uint16_t role;                    //  10  transport::Role
  std::uint16_t family;                  //  12  kIpv4 or kIpv6
  std::uint16_t port;                    //  14  TCP port
  std::array<std::uint8_t, 16> address;  //  16  network order; IPv4 in the first four bytes
  std::array<std::uint8_t, 16> nonce;    //  32  random, one for each listener
  std::uint32_t scope;                   //  48  the listener's interface index, for logs; a dialer uses its own
  std::array<std::uint8_t, 68> zero;     //  52
  std::uint64_t checksum;                // 120  XXH3-64 of bytes 0..119
};
static_assert(sizeof(Handle) == 128 && offsetof(Handle, nonce) == 32 && offsetof(Handle, checksum) == 120);

/// The first bytes of Hello and Reply in every version: enough to tell an old peer from a stranger.
struct Prefix {
  std::uint64_t magic;    //  0
  std::uint16_t version;  //  8
  std::uint16_t bytes;    // 10  of the whole message, prefix and text included
  std::uint32_t zero;     // 12
};
static_assert(sizeof(Prefix) == 16);

/// First message of a dialer on each stream, followed by `userBytes` of its own.
struct Hello {
  Prefix prefix;                            //  0  kHelloMagic
  std::array<std::uint8_t, 16> nonce;       // 16  the listener's, from the handle
  std::array<std::uint8_t, 16> connection;  // 32  random, the same on all streams of one connection
  std::uint16_t role;                       // 48  transport::Role
  std::uint16_t stream;                     // 50  index of this stream
  std::uint16_t streams;                    // 52  how many the connection has: 1..kMaxStreams
  std::uint16_t userBytes;                  // 54  0..256; the same bytes on every stream
  std::uint64_t checksum;                   // 56  XXH3-64 of the whole message, this field zero
};
static_assert(sizeof(Hello) == 64 && offsetof(Hello, role) == 48 && offsetof(Hello, checksum) == 56);

enum class Answer : std::uint16_t { Welcome = 0, Refused = 1 };

/// The listener's answer on each stream, followed by `textBytes` of reason (UTF-8, no terminator) when it refuses.
struct Reply {
  Prefix prefix;            //  0  kReplyMagic
  std::uint16_t verdict;    // 16  Answer
  std::uint16_t textBytes;  // 18  0..kMaxTextBytes
  std::uint32_t zero;       // 20
  std::uint64_t checksum;   // 24  XXH3-64 of the whole message, this field zero
};
static_assert(sizeof(Reply) == 32);

inline constexpr std::size_t kMaxStreams = 16;
inline constexpr std::size_t kMaxTextBytes = 512;

enum class FrameType : std::uint8_t {
  Posted = 1,  // "I posted receive `receive`": payload is one PostedSlot for each slot. Stream 0 only, receives in
               // order from 0
  Data =
      2,  // bytes [offset, offset + length) of the message for slot `slot` of receive `receive`. Any stream, any order
  Heartbeat = 3,  // nothing but life
  Bye = 4,        // last frame of a stream: payload is why, as text. Empty: a clean end
  TooLong = 5,    // last frame of a stream: the message of `total` bytes is longer than its slot
};

inline constexpr std::uint8_t kFlagChecksum = 1;  // `payloadChecksum` is set

struct Frame {
  std::uint32_t magic;            //  0  kFrameMagic
  std::uint8_t type;              //  4  FrameType
  std::uint8_t flags;             //  5  kFlag...
  std::uint8_t slot;              //  6  index in the receive
  std::uint8_t zero;              //  7
  std::uint32_t length;           //  8  bytes of payload after this header
  std::uint32_t zero2;            // 12
  std::uint64_t receive;          // 16  sequence number of the receive, counted from 0 by who posted it
  std::uint64_t offset;           // 24  of the payload in the message
  std::uint64_t total;            // 32  bytes of the whole message
  std::uint64_t payloadChecksum;  // 40  XXH3-64 of the payload, or 0
  std::uint64_t zero3;            // 48
  std::uint64_t checksum;         // 56  XXH3-64 of bytes 0..55
};
static_assert(sizeof(Frame) == 64 && offsetof(Frame, receive) == 16 && offsetof(Frame, checksum) == 56);

struct PostedSlot {
  std::int32_t tag;        //  0
  std::uint32_t zero;      //  4
  std::uint64_t capacity;  //  8  bytes
};
static_assert(sizeof(PostedSlot) == 16);

static_assert(std::has_unique_object_representations_v<Handle> && std::has_unique_object_representations_v<Hello> &&
              std::has_unique_object_representations_v<Reply> && std::has_unique_object_representations_v<Frame> &&
              std::has_unique_object_representations_v<PostedSlot>);

/// Longest payload of a data frame. Bounds how long a high-priority message waits behind a normal one on a stream, and
/// fits the caches in which checksum and copy meet.
inline constexpr std::size_t kMaxChunkBytes = std::size_t{256} << 10;

}  // namespace cgx::wire
