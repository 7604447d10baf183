#include "transport/handshake.h"

#include <gtest/gtest.h>
#include <netinet/in.h>

#include <cstring>

#include "support/faulty_stream.h"
#include "transport/checksum.h"

namespace cgx::transport {
namespace {

constexpr Nonce kNonce{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};

wire::Handle fields() {
  wire::Handle handle{};
  handle.role = 1;
  handle.family = wire::kIpv4;
  handle.port = 4711;
  handle.nonce = kNonce;
  return handle;
}

std::span<const std::byte> bytesOf(const char* text) { return std::as_bytes(std::span(text, std::strlen(text))); }

/// Both machines over two wires until neither moves any more.
struct Meeting {
  Meeting(const Introduction& introduction, Nonce nonce, Role role, Faults dialFaults = {}, Faults acceptFaults = {})
      : dial(introduction),
        accept(nonce, role),
        dialSide(toDialer, toAcceptor, dialFaults),
        acceptSide(toAcceptor, toDialer, acceptFaults) {}
  void run() {
    for (int i = 0; i < 100000 && (dialed.isPending() || accepted.isPending()); ++i) {
      if (dialed.isPending()) dialed = dial.progress(dialSide);
      if (accepted.isPending()) accepted = accept.progress(acceptSide);
      // As sockets do: who gives up closes, and the other reads what was written before.
      if (accepted.failed()) toDialer.closed = true;
      if (dialed.failed()) toAcceptor.closed = true;
    }
  }
  Wire toDialer, toAcceptor;
  DialHandshake dial;
  AcceptHandshake accept;
  FaultyStream dialSide, acceptSide;
  Status dialed = Status::pending(), accepted = Status::pending();
};

TEST(Handle, SurvivesTheTripAndNamesWhatIsWrongWithEveryDamage) {
  const Handle good = encodeHandle(fields());
  const auto decoded = decodeHandle(good);
  ASSERT_TRUE(decoded.ok()) << decoded.status().text();
  EXPECT_EQ(decoded.value().port, 4711);
  EXPECT_EQ(decoded.value().nonce, kNonce);
  for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
    Handle bad = good;
    bad[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
    const auto result = decodeHandle(bad);
    ASSERT_EQ(result.status().code(), Code::Invalid) << bit;
    ASSERT_FALSE(result.status().text().empty());
  }
}

TEST(Handle, OfZerosOrOfAnotherPluginIsRefusedWithAReason) {
  EXPECT_NE(decodeHandle(Handle{}).status().text().find("all zero"), std::string::npos);
  Handle foreign{};  // as NCCL's own socket transport lays it out: an address, then a magic
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(4711);
  std::memcpy(foreign.data(), &address, sizeof address);
  const std::uint64_t magic = 0x564ab9f2fc4b9d6c;
  std::memcpy(foreign.data() + 28, &magic, sizeof magic);
  EXPECT_NE(decodeHandle(foreign).status().text().find("not from this plugin"), std::string::npos);
}

TEST(Handle, WithGoodChecksumButSenselessFieldsIsRefused) {
  wire::Handle handle = fields();
  handle.family = 0;
  EXPECT_NE(decodeHandle(encodeHandle(handle)).status().text().find("family 0"), std::string::npos);
  handle = fields();
  handle.port = 0;
  EXPECT_FALSE(decodeHandle(encodeHandle(handle)).ok());
}

TEST(Handshake, TellsTheAcceptorWhoDials) {
  Nonce id{};
  id[0] = 42;
  Meeting meeting({kNonce, id, Role::Collective, 2, 3, bytesOf("rank 3")}, kNonce, Role::Collective);
  meeting.run();
  ASSERT_TRUE(meeting.dialed.ok()) << meeting.dialed.text();
  ASSERT_TRUE(meeting.accepted.ok()) << meeting.accepted.text();
  EXPECT_EQ(meeting.accept.hello().connection, id);
  EXPECT_EQ(meeting.accept.hello().stream, 2);
  EXPECT_EQ(meeting.accept.hello().streams, 3);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(meeting.accept.user().data()), meeting.accept.user().size()),
            "rank 3");
}

TEST(Handshake, WorksOneByteAtATimeAndWithRandomStalls) {
  for (std::uint32_t seed = 1; seed <= 200; ++seed) {
    const Faults faults{.bytesPerCall = 1 + seed % 5, .pendingShare = seed % 3 == 0 ? 0.7 : 0.0, .seed = seed};
    const std::string user(seed % 257, 'u');
    Meeting meeting({kNonce, {}, Role::Net, 0, 1, bytesOf(user.c_str())}, kNonce, Role::Net, faults, faults);
    meeting.run();
    ASSERT_TRUE(meeting.dialed.ok() && meeting.accepted.ok())
        << seed << meeting.dialed.text() << meeting.accepted.text();
    ASSERT_EQ(meeting.accept.user().size(), user.size());
    ASSERT_TRUE(meeting.toDialer.bytes.empty() && meeting.toAcceptor.bytes.empty());
  }
}

TEST(Handshake, ReadsNoByteThatFollows) {
  Meeting meeting({kNonce, {}, Role::Net, 0, 1, {}}, kNonce, Role::Net);
  meeting.run();
  meeting.toDialer.bytes.push_back(std::byte{7});
  EXPECT_TRUE(meeting.dial.progress(meeting.dialSide).ok());
  EXPECT_EQ(meeting.toDialer.bytes.size(), 1u);
}

TEST(Handshake, EndsWithAnErrorAtEveryByteOfADeath) {
  for (std::size_t at = 0; at < 64; ++at) {
    Meeting meeting({kNonce, {}, Role::Net, 0, 1, {}}, kNonce, Role::Net, {}, {.resetAfter = at});
    meeting.run();
    ASSERT_EQ(meeting.accepted.code(), Code::Remote) << at;
    ASSERT_EQ(meeting.dialed.code(), Code::Remote) << at;
  }
  for (std::size_t at = 0; at < 32; ++at) {
    Meeting meeting({kNonce, {}, Role::Net, 0, 1, {}}, kNonce, Role::Net, {.resetAfter = at}, {});
    meeting.run();
    ASSERT_EQ(meeting.dialed.code(), Code::Remote) << at;
  }
}

TEST(Handshake, RefusesEveryFlippedBitInBothDirections) {
  for (std::size_t bit = 0; bit < 8 * sizeof(wire::Hello); ++bit) {
    Meeting meeting({kNonce, {}, Role::Net, 0, 1, {}}, kNonce, Role::Net, {.flipBit = bit}, {});
    meeting.run();
    ASSERT_FALSE(meeting.accepted.ok()) << bit;
    ASSERT_FALSE(meeting.dialed.ok()) << bit;
  }
  for (std::size_t bit = 0; bit < 8 * sizeof(wire::Reply); ++bit) {
    Meeting meeting({kNonce, {}, Role::Net, 0, 1, {}}, kNonce, Role::Net, {}, {.flipBit = bit});
    meeting.run();
    ASSERT_FALSE(meeting.dialed.ok()) << bit;
  }
}

TEST(Handshake, SaysWhyItRefuses) {
  Nonce other = kNonce;
  other[15] ^= 1;
  const struct {
    Introduction introduction;
    const char* why;
  } cases[] = {{{other, {}, Role::Net, 0, 1, {}}, "not this listener's"},
               {{kNonce, {}, Role::Collective, 0, 1, {}}, "collective dialer came to a net listener"},
               {{kNonce, {}, Role::Net, 2, 2, {}}, "stream 2 of 2"},
               {{kNonce, {}, Role::Net, 0, 17, {}}, "stream 0 of 17"}};
  for (const auto& test : cases) {
    Meeting meeting(test.introduction, kNonce, Role::Net);
    meeting.run();
    EXPECT_EQ(meeting.accepted.code(), Code::Remote);
    EXPECT_NE(meeting.dialed.text().find(test.why), std::string::npos) << meeting.dialed.text();
    EXPECT_EQ(meeting.dialed.sysErrno(), 0);  // final: no errno means no retry
  }
}

TEST(Handshake, TellsAPeerOfAnotherVersionBothVersions) {
  Wire in, out;
  FaultyStream stream(in, out);
  AcceptHandshake accept(kNonce, Role::Net);
  const wire::Prefix prefix{wire::kHelloMagic, 9, 200, 0};
  std::array<std::byte, 200> hello{};
  std::memcpy(hello.data(), &prefix, sizeof prefix);
  in.bytes.assign(hello.begin(), hello.end());
  const Status status = accept.progress(stream);
  EXPECT_EQ(status.code(), Code::Remote);
  EXPECT_NE(status.text().find("version 9"), std::string::npos) << status.text();
  EXPECT_TRUE(in.bytes.empty());  // unread bytes would reset the connection before the answer is read
  EXPECT_GT(out.bytes.size(), sizeof(wire::Reply));

  Wire back, nowhere;
  FaultyStream dialer(back, nowhere);
  DialHandshake dial({kNonce, {}, Role::Net, 0, 1, {}});
  const wire::Prefix reply{wire::kReplyMagic, 7, 32, 0};
  const auto bytes = std::as_bytes(std::span(&reply, 1));
  back.bytes.assign(bytes.begin(), bytes.end());
  EXPECT_NE(dial.progress(dialer).text().find("version 7"), std::string::npos);
}

TEST(Handshake, DropsStrangersAtTheirFirstSixteenBytesWithoutAnAnswer) {
  const std::uint64_t ncclMagic = 0x564ab9f2fc4b9d6c;
  std::string nccl(16, '\0');
  std::memcpy(nccl.data(), &ncclMagic, sizeof ncclMagic);
  for (const std::string& text : {std::string("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
                                  std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 hello...", 24),
                                  std::string("SSH-2.0-OpenSSH_9.2\r\n"), std::string(4096, '\xff'), nccl}) {
    Wire in, out;
    FaultyStream stream(in, out);
    const auto bytes = std::as_bytes(std::span(text));
    in.bytes.assign(bytes.begin(), bytes.end());
    AcceptHandshake accept(kNonce, Role::Net);
    EXPECT_EQ(accept.progress(stream).code(), Code::Remote);
    EXPECT_TRUE(out.bytes.empty());
  }
}

TEST(Nonce, IsNewEachTime) {
  const auto a = randomNonce(), b = randomNonce();
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_NE(a.value(), b.value());
}

}  // namespace
}  // namespace cgx::transport
