// Interface selection and dialing on hosts made of network namespaces: several NICs, IPv6, link-local, routers, cables
// pulled. Needs root and the ip command; skipped otherwise, with the reason.
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "cgx/wire_link.h"
#include "contract/transport_fixture.h"
#include "support/network_host.h"
#include "transport/handshake.h"

namespace cgx::transport {
namespace {

using test::cable;
using test::Host;

Settings settingsFor(const std::string& ifname, double peerTimeout = 30) {
  Settings settings;
  settings.peerTimeout = peerTimeout;
  settings.ifname = ifname;
  settings.connectTimeout = 10;
  return settings;
}

bool fails(const std::string& why) {
  std::fprintf(stderr, "%s\n", why.c_str());
  return false;
}

struct Talk {
  std::string listenOn, dialFrom;  // CGX_SOCKET_IFNAME of the two
  std::string expectedSource;      // what the listener must see as the dialer's address
  std::size_t bytes = 1 << 20;
  std::function<void()> between;  // in the test's process, once a first megabyte has arrived and the rest is under way
  double peerTimeout = 30;        // CGX_PEER_TIMEOUT of the two
};

bool receives(Connection& connection, std::size_t bytes) {
  std::vector<std::byte> room(bytes);
  Waiter got;
  const Slot slot{room, 0};
  if (!connection.recv({&slot, 1}, got).ok() || !got.wait(seconds(30))) return fails("nothing came");
  return got.status().ok() ? room == pattern(bytes, 1) : fails(got.status().text());
}

/// `started` is written to once the message is under way.
bool sends(Connection& connection, std::size_t bytes, int started) {
  const auto data = pattern(bytes, 1);
  Waiter sent;
  if (!connection.send(data, 0, Priority::Normal, sent).ok()) return fails("cannot send");
  if (started >= 0 && ::write(started, "s", 1) != 1) return fails("nobody waits for the start");
  if (!sent.wait(seconds(30))) return fails("send did not end");
  return sent.status().ok() || fails(sent.status().text());
}

constexpr std::size_t kFirst = 1 << 20;

bool listens(const Talk& plan, int handleTo) {
  auto transport = createSocket(settingsFor(plan.listenOn, plan.peerTimeout));
  if (!transport.ok()) return fails(transport.status().text());
  auto door = transport.value()->listen(0, Role::Net);
  if (!door.ok()) return fails(door.status().text());
  if (::write(handleTo, door.value()->handle().data(), kHandleBytes) != kHandleBytes) return false;
  std::unique_ptr<Connection> connection;
  for (const auto end = Clock::now() + seconds(15); !connection && Clock::now() < end;) {
    if (auto accepted = door.value()->accept(); accepted.ok()) connection = std::move(accepted).value();
    std::this_thread::sleep_for(milliseconds(1));
  }
  if (!connection) return fails("nobody came");
  if (connection->peer().find(plan.expectedSource) == std::string::npos)
    return fails("dialed from " + connection->peer());
  return receives(*connection, kFirst) && receives(*connection, plan.bytes);
}

bool dials(const Talk& plan, int handleFrom, int started) {
  auto transport = createSocket(settingsFor(plan.dialFrom, plan.peerTimeout));
  if (!transport.ok()) return fails(transport.status().text());
  Handle handle;
  if (::read(handleFrom, handle.data(), handle.size()) != static_cast<ssize_t>(handle.size()))
    return fails("the other side did not get to listen");
  auto connector = transport.value()->connect(0, handle, {});
  if (!connector.ok()) return fails(connector.status().text());
  Status status = Status::pending();
  while (status.isPending()) {
    status = connector.value()->progress();
    std::this_thread::sleep_for(milliseconds(1));
  }
  if (!status.ok()) return fails(status.text());
  auto connection = connector.value()->take();
  return sends(*connection, kFirst, -1) && sends(*connection, plan.bytes, started);
}

/// Two messages from `dialer` to `listener`.
bool talk(const Host& listener, const Host& dialer, const Talk& plan) {
  int handle[2];
  int started[2];
  if (::pipe(handle) != 0 || ::pipe(started) != 0) return false;
  const pid_t first = listener.start([&] {
    ::close(started[1]);
    return listens(plan, handle[1]);
  });
  ::close(handle[1]);  // or the dialer would wait for a listener that has failed
  const pid_t second = dialer.start([&] { return dials(plan, handle[0], started[1]); });
  ::close(started[1]);
  char byte;
  if (plan.between && ::read(started[0], &byte, 1) == 1) plan.between();
  const bool heard = Host::succeeded(first), said = Host::succeeded(second);
  ::close(handle[0]), ::close(started[0]);
  return heard && said;
}

/// The devices that a host's transport has, joined by spaces.
void expectDevices(const Host& host, const std::string& ifname, const std::string& expected) {
  EXPECT_TRUE(Host::succeeded(host.start([&] {
    auto transport = createSocket(settingsFor(ifname));
    if (!transport.ok()) return fails(transport.status().text());
    std::string names;
    for (const Device& device : transport.value()->devices()) names += (names.empty() ? "" : " ") + device.name;
    return names == expected || fails("has " + names + ", not " + expected);
  })));
}

class Namespaces : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = test::whyNoNetworkHosts(); !why.empty()) GTEST_SKIP() << why;
    a_ = std::make_unique<Host>("a");
    b_ = std::make_unique<Host>("b");
    cable(*a_, "eth0", *b_, "eth0");
  }
  std::unique_ptr<Host> a_, b_;
};

TEST_F(Namespaces, DialFromTheAddressOfTheChosenDeviceWithTwoInOneSubnet) {
  cable(*a_, "eth1", *b_, "eth1");
  for (const auto& [host, last] : {std::pair{a_.get(), "1"}, {b_.get(), "2"}}) {
    host->address("eth0", std::string("10.77.0.") + last + "/24");
    host->address("eth1", std::string("10.77.0.1") + last + "/24");
  }
  for (const auto* host : {a_.get(), b_.get()}) host->await("eth0", "UP"), host->await("eth1", "UP");
  EXPECT_TRUE(talk(*a_, *b_, {"=eth0", "=eth0", "10.77.0.2:", 1 << 20, {}}));
  EXPECT_TRUE(talk(*a_, *b_, {"=eth1", "=eth1", "10.77.0.12:", 1 << 20, {}}));
  EXPECT_TRUE(talk(*a_, *b_, {"=eth0", "=eth1", "10.77.0.12:", 1 << 20, {}}));
}

TEST_F(Namespaces, WorkWithIpv4OnlyIpv6OnlyAndLinkLocalOnly) {
  a_->kernel("net/ipv6/conf/all/disable_ipv6", "1");
  b_->kernel("net/ipv6/conf/all/disable_ipv6", "1");
  a_->address("eth0", "10.77.0.1/24");
  b_->address("eth0", "10.77.0.2/24");
  a_->await("eth0", "UP"), b_->await("eth0", "UP");
  EXPECT_TRUE(talk(*a_, *b_, {"", "", "10.77.0.2:", 1 << 20, {}}));
  for (const auto* host : {a_.get(), b_.get()}) {
    host->ip("addr flush dev eth0");
    host->ip("link set eth0 down");
    host->kernel("net/ipv6/conf/all/disable_ipv6", "0");
    host->kernel("net/ipv6/conf/eth0/accept_dad", "0");
    host->ip("link set eth0 up");
  }
  a_->await("eth0", "UP"), b_->await("eth0", "UP");
  EXPECT_TRUE(talk(*a_, *b_, {"eth0", "eth0", "[fe80::", 1 << 20, {}}));
  a_->address("eth0", "fd00:77::1/64");
  b_->address("eth0", "fd00:77::2/64");
  EXPECT_TRUE(talk(*a_, *b_, {"", "", "[fd00:77::2]:", 1 << 20, {}}));
}

TEST_F(Namespaces, CrossARouterBetweenSubnets) {
  Host router("r");
  cable(*a_, "eth1", router, "r0");
  cable(*b_, "eth1", router, "r1");
  a_->address("eth1", "10.1.0.1/26"), router.address("r0", "10.1.0.2/26");
  b_->address("eth1", "10.2.0.1/26"), router.address("r1", "10.2.0.2/26");
  router.kernel("net/ipv4/ip_forward", "1");
  a_->ip("route add default via 10.1.0.2");
  b_->ip("route add default via 10.2.0.2");
  a_->await("eth1", "UP"), b_->await("eth1", "UP");
  EXPECT_TRUE(talk(*a_, *b_, {"", "", "10.2.0.1:", 1 << 20, {}}));
}

TEST_F(Namespaces, SkipBridgesTunnelsLinkLocalAndDownInterfacesUnlessNamed) {
  a_->address("eth0", "10.77.0.1/24");
  b_->ip("link set eth0 up");
  for (const auto& [name, cidr] :
       {std::pair{"veth9", ""}, {"docker0", "172.17.0.1/16"}, {"usb0", "169.254.3.1/16"}, {"eth5", "10.5.0.1/24"}}) {
    cable(*a_, name, *b_, std::string(name) + "p");
    a_->ip(std::string("link set ") + name + " up");
    b_->ip(std::string("link set ") + name + "p up");
    if (*cidr != '\0') a_->address(name, cidr);
  }
  b_->ip("link set eth5p down");  // no carrier
  for (const char* name : {"eth0", "veth9", "docker0", "usb0"}) a_->await(name, "UP");
  a_->await("eth5", "DOWN");
  expectDevices(*a_, "", "eth0");
  expectDevices(*a_, "docker0", "docker0");
  expectDevices(*a_, "usb,eth0", "eth0 usb0");
  expectDevices(*a_, "lo", "lo");
}

TEST_F(Namespaces, HostsWithVeryManyInterfacesAreCapped) {
  for (int i = 1; i < 40; ++i) {
    const std::string n = std::to_string(i);
    cable(*a_, "en" + n, *b_, "en" + n);
    b_->ip("link set en" + n + " up");
    a_->address("en" + n, "10.9." + n + ".1/24");
  }
  for (int i = 1; i < 40; ++i) a_->await("en" + std::to_string(i), "UP");
  EXPECT_TRUE(Host::succeeded(a_->start([] {
    auto transport = createSocket({});
    return transport.ok() && transport.value()->devices().size() == 32;
  })));
}

TEST_F(Namespaces, AShortFlapOfTheLinkIsSurvived) {
  a_->address("eth0", "10.77.0.1/24");
  b_->address("eth0", "10.77.0.2/24");
  a_->await("eth0", "UP"), b_->await("eth0", "UP");
  EXPECT_TRUE(talk(*a_, *b_, {"", "", "10.77.0.2:", std::size_t{512} << 20, [&] {
                                b_->ip("link set eth0 down");
                                std::this_thread::sleep_for(seconds(1));
                                b_->ip("link set eth0 up");
                              }}));
}

TEST_F(Namespaces, ALinkThatStaysDownIsAnErrorInTheConfiguredTime) {
  a_->address("eth0", "10.77.0.1/24");
  b_->address("eth0", "10.77.0.2/24");
  a_->await("eth0", "UP"), b_->await("eth0", "UP");
  Clock::time_point down{};
  EXPECT_FALSE(talk(*a_, *b_,
                    {"", "", "10.77.0.2:", std::size_t{512} << 20,
                     [&] {
                       b_->ip("link set eth0 down");
                       down = Clock::now();
                     },
                     2}));
  ASSERT_NE(down, Clock::time_point{}) << "never got that far";
  EXPECT_GT(Clock::now() - down, seconds(1)) << "not because of the link";
  EXPECT_LT(Clock::now() - down, seconds(20)) << "on both sides, and before the test's own patience of 30";
}

TEST_F(Namespaces, AnUnreachablePeerIsAnErrorWithItsAddressInTime) {
  b_->address("eth0", "10.77.0.2/24");
  a_->ip("link set eth0 up");
  b_->await("eth0", "UP");
  EXPECT_TRUE(Host::succeeded(b_->start([] {
    Settings settings = settingsFor("");
    settings.connectTimeout = 4;
    auto transport = createSocket(settings);
    if (!transport.ok()) return fails(transport.status().text());
    // A valid handle for an address that nobody has.
    auto here = transport.value()->listen(0, Role::Net);
    auto fields = std::bit_cast<wire::Handle>(here.value()->handle());
    fields.address[3] = 99;
    auto connector = transport.value()->connect(0, encodeHandle(fields), {});
    const auto begin = Clock::now();
    Status status = Status::pending();
    while (status.isPending() && Clock::now() - begin < seconds(10)) {
      status = connector.value()->progress();
      std::this_thread::sleep_for(milliseconds(5));
    }
    if (!status.failed() || Clock::now() - begin > seconds(6)) return fails("took too long: " + status.text());
    const bool named = status.text().find("10.77.0.99:") != std::string::npos &&
                       status.text().find("No route to host") != std::string::npos;
    return named || fails(status.text());
  })));
}

}  // namespace
}  // namespace cgx::transport
