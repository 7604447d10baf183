#include "transport/socket/interfaces.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <set>

namespace cgx::transport::socket {
namespace {

Address address(const char* text) {
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  if (::inet_pton(AF_INET, text, &v4.sin_addr) == 1) return {reinterpret_cast<sockaddr*>(&v4), sizeof v4};
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  EXPECT_EQ(::inet_pton(AF_INET6, text, &v6.sin6_addr), 1) << text;
  return {reinterpret_cast<sockaddr*>(&v6), sizeof v6};
}

Interface interface(std::string name, std::vector<const char*> addresses, bool up = true) {
  static std::uint32_t index = 0;
  Interface result{std::move(name), ++index, up, false, {}};
  result.loopback = result.name == "lo";
  for (const char* text : addresses) result.addresses.push_back(address(text));
  return result;
}

std::vector<Interface> host() {
  return {interface("lo", {"127.0.0.1", "::1"}),  interface("bond0", {"10.0.0.1", "fe80::1"}),
          interface("bond0.2093", {"10.9.0.1"}),  interface("eth0", {"10.1.0.1", "fd00::1"}),
          interface("eth1", {"10.2.0.1"}, false), interface("usb0", {"169.254.3.1"}),
          interface("veth9", {"fe80::9"}),        interface("docker0", {"172.17.0.1"}),
          interface("virbr0", {"192.168.122.1"})};
}

std::string names(const Result<std::vector<Chosen>>& chosen) {
  if (!chosen.ok()) return "";
  std::string text;
  for (const Chosen& one : chosen.value()) text += (text.empty() ? "" : " ") + one.interface.name;
  return text;
}

TEST(Interfaces, FollowTheGrammarOfNccl) {
  const struct {
    const char* pattern;
    const char* expected;
  } cases[] = {{"", "bond0 bond0.2093 eth0"},
               {"eth", "eth0"},
               {"bond0", "bond0 bond0.2093"},
               {"=bond0", "bond0"},
               {"=bond0,eth0", "bond0 eth0"},
               {"eth0,docker", "eth0 docker0"},
               {"^bond", "eth0"},
               {"^=bond0", "bond0.2093 eth0"},
               {"^docker,lo", "bond0 bond0.2093 eth0"},
               {"lo", "lo"},
               {"usb0", "usb0"},
               {"veth9", "veth9"},
               {"=virbr0", "virbr0"},
               {"eth0:1", "eth0"},
               {"=eth", ""},
               {"nonexistent0", ""}};
  for (const auto& test : cases)
    EXPECT_EQ(names(chooseInterfaces(host(), test.pattern, "")), test.expected) << test.pattern;
}

TEST(Interfaces, UseLoopbackOnlyWhereThereIsNothingElse) {
  const std::vector<Interface> alone{interface("lo", {"127.0.0.1"}), interface("docker0", {"172.17.0.1"}),
                                     interface("eth0", {"10.0.0.1"}, false)};
  EXPECT_EQ(names(chooseInterfaces(alone, "", "")), "lo");
  const std::vector<Interface> container{interface("lo", {"127.0.0.1"}), interface("veth0", {"10.0.0.1"})};
  EXPECT_EQ(names(chooseInterfaces(container, "", "")), "veth0");
}

TEST(Interfaces, ListenOnTheAddressOfTheFamilyAsked) {
  const auto at = [](const char* pattern, const char* family) {
    const auto chosen = chooseInterfaces(host(), pattern, family);
    return chosen.ok() ? chosen.value().front().listenAddress.host() : chosen.status().text();
  };
  EXPECT_EQ(at("=eth0", ""), "10.1.0.1");
  EXPECT_EQ(at("=eth0", "AF_INET6"), "fd00::1");
  EXPECT_EQ(at("=bond0", "AF_INET6"), "fe80::1");  // link-local, but asked for by name
  EXPECT_EQ(at("=veth9", ""), "fe80::9");
  EXPECT_EQ(names(chooseInterfaces(host(), "", "AF_INET6")), "eth0");
}

TEST(Interfaces, SayWhyNoneIsUsable) {
  const auto chosen = chooseInterfaces(host(), "=eth1,%s%n", "AF_INET");
  ASSERT_EQ(chosen.status().code(), Code::Invalid);
  const std::string& text = chosen.status().text();
  EXPECT_NE(text.find("CGX_SOCKET_IFNAME==eth1,%s%n"), std::string::npos) << text;
  EXPECT_NE(text.find("eth1 (down)"), std::string::npos) << text;
  EXPECT_NE(text.find("eth0 (not matched)"), std::string::npos) << text;
}

TEST(Interfaces, AreCappedWhenThereAreVeryMany) {
  std::vector<Interface> many;
  for (int i = 0; i < 40; ++i) many.push_back(interface("eth" + std::to_string(i), {"10.0.0.1"}));
  const auto chosen = chooseInterfaces(many, "", "");
  ASSERT_TRUE(chosen.ok());
  EXPECT_EQ(chosen.value().size(), kMaxDevices);
}

TEST(Interfaces, OfThisHostAreListedAndDescribed) {
  const auto all = listInterfaces();
  ASSERT_TRUE(all.ok()) << all.status().text();
  std::set<std::uint64_t> guids;
  for (const Interface& one : all.value()) {
    const Device device = describeDevice({one, {}}, 0);
    EXPECT_GT(device.speedMbps, 0) << one.name;
    if (one.loopback) {
      EXPECT_EQ(device.speedMbps, 40000) << one.name;
    }
    EXPECT_TRUE(guids.insert(device.guid).second) << one.name;
    EXPECT_EQ(describeDevice({one, {}}, 25000).speedMbps, 25000);
  }
}

}  // namespace
}  // namespace cgx::transport::socket
