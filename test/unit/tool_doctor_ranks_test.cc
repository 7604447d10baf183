// Each difference between ranks is named with the ranks; equal ones have no problem. What others send is input.
#include <gtest/gtest.h>
#include <unistd.h>

#include "doctor/hosts.h"
#include "doctor/lines.h"
#include "doctor/ranks.h"

namespace cgx::tool::doctor {
namespace {

Card card(const std::string& host) {
  Facts facts;
  facts.host = host;
  facts.hostIdentity = "boot of " + host;
  facts.opened = "/usr/local/lib/libnccl-net-cgx.so";
  facts.build = "0123456789abcdef";
  facts.nccl = {{"/usr/lib/libnccl.so.2", {2, 28, 9}, "loader's path"}};
  facts.devices = {"eth0, 10000 Mb/s"};
  facts.settings.worldRanks = 3;
  Card made = cardOf(facts, [](const char*) -> const char* { return nullptr; });
  made.doors = {{"eth0", {}}};
  return made;
}

Gathered healthy() {
  Gathered all;
  all.cards = {card("a"), card("b"), card("b")};
  all.findings = {Findings{}, Findings{}, Findings{}};
  all.names = rankNames(all.cards);
  return all;
}

Check find(const Gathered& all, const std::string& name) {
  for (const Check& check : compare(all))
    if (check.name == name) return check;
  ADD_FAILURE() << "no check " << name;
  return {};
}
std::vector<std::string> problemsOf(const Gathered& all) {
  std::vector<std::string> names;
  for (const Check& check : compare(all))
    if (check.verdict == Verdict::Problem) {
      EXPECT_FALSE(check.remedy.empty()) << check.name;
      names.push_back(check.name);
    }
  return names;
}
using Names = std::vector<std::string>;

TEST(DoctorRanks, HaveNoProblemWhenAlike) {
  EXPECT_EQ(problemsOf(healthy()), Names{});
  EXPECT_EQ(nodesOf(healthy().cards), 2);
  EXPECT_EQ(firstOfEachNode(healthy().cards), (std::vector<int>{0, 1}));
}

TEST(DoctorRanks, NameBitsThatDifferWithTheirRanks) {
  Gathered all = healthy();
  all.cards[2]->settings["CGX_BITS"] = "8";
  const Check check = find(all, "same settings");
  EXPECT_EQ(check.text, "CGX_BITS: 4 (rank 0 on a, rank 1 on b), 8 (rank 2 on b): no communicator will be compressed");
  EXPECT_EQ(problemsOf(all), Names{"same settings"});
  for (auto& one : all.cards) one->settings["CGX_MODE"] = "always";
  EXPECT_NE(find(all, "same settings").text.find("every rank gets the same sums"), std::string::npos);
  EXPECT_EQ(problemsOf(all), Names{"same settings"});
}

TEST(DoctorRanks, NameEverythingThatConnectRefuses) {
  for (const char* setting : {"CGX_ONE_PHASE_BYTES", "CGX_MODE", "CGX_COMMS", "CGX_MIN_BYTES", "CGX_BITS"}) {
    Gathered all = healthy();
    all.cards[1]->settings[setting] = "17";
    EXPECT_EQ(problemsOf(all), Names{"same settings"}) << setting;
    EXPECT_NE(find(all, "same settings").text.find(setting), std::string::npos);
  }
  Gathered all = healthy();
  all.cards[1]->staging = 4 << 20;
  all.cards[1]->settings["CGX_STAGING"] = "4 MiB";
  EXPECT_NE(find(all, "same settings").text.find("CGX_STAGING"), std::string::npos) << "blocks are shorter";
  EXPECT_EQ(problemsOf(all), Names{"same settings"});
  all.cards[1]->staging = 60 << 20;
  EXPECT_EQ(problemsOf(all), Names{}) << "blocks are as long";
}

TEST(DoctorRanks, OnlyNoteOtherSettings) {
  Gathered all = healthy();
  all.cards[1]->settings["CGX_THREADS"] = "2";
  EXPECT_EQ(problemsOf(all), Names{});
  EXPECT_NE(find(all, "same settings").text.find("CGX_THREADS: "), std::string::npos);
}

TEST(DoctorRanks, NameLibrariesVersionsVariablesDevicesAndSizesThatDiffer) {
  Gathered all = healthy();
  all.cards[1]->build = "fedcba9876543210";
  EXPECT_EQ(problemsOf(all), Names{"same library"});
  all = healthy();
  all.cards[1]->library = all.cards[1]->build = "";
  EXPECT_NE(find(all, "same library").text.find("none (rank 1 on b)"), std::string::npos);
  all = healthy();
  all.cards[1]->nccl = "2.27.7";
  EXPECT_EQ(problemsOf(all), Names{"same NCCL"});
  all = healthy();
  all.cards[1]->variables["NCCL_ALGO"] = "Ring";
  EXPECT_EQ(problemsOf(all), Names{"same NCCL_*"});
  all = healthy();
  all.cards[1]->variables["NCCL_SOCKET_IFNAME"] = "eth1";
  EXPECT_EQ(problemsOf(all), Names{}) << "interfaces may have other names";
  EXPECT_NE(find(all, "same NCCL_*").text.find("eth1 (rank 1 on b)"), std::string::npos);
  all = healthy();
  all.cards[1]->devices = 2;
  EXPECT_EQ(problemsOf(all), Names{"same devices"});
  all = healthy();
  all.cards[1]->worldRanks = 8;
  EXPECT_EQ(problemsOf(all), Names{"job's size"});
  all = healthy();
  all.cards[0]->maxRanks = 1;
  EXPECT_EQ(problemsOf(all), Names{"nodes"});
}

TEST(DoctorRanks, NameTheWayThatIsClosedAndThePortsToOpen) {
  Gathered all = healthy();
  all.findings[0]->unreached = {{1, "eth0", "connect to 10.0.0.2:29600: no answer"}};
  EXPECT_EQ(problemsOf(all), Names{"reach"});
  EXPECT_NE(find(all, "reach").text.find("from rank 0 on a to rank 1 on b (eth0): connect to 10.0.0.2:29600"),
            std::string::npos);
  EXPECT_NE(find(all, "reach").remedy.find("any port"), std::string::npos);
  for (auto& one : all.cards) one->settings["CGX_PORT_RANGE"] = "29600-29999";
  EXPECT_NE(find(all, "reach").remedy.find("ports 29600-29999"), std::string::npos);
  all.findings[0]->unreached[0].rank = 77;
  EXPECT_EQ(problemsOf(all), Names{}) << "a rank that does not exist";
  all.cards[1]->doors.clear();
  EXPECT_NE(find(all, "reach").text.find("could not be tried with rank 1 on b"), std::string::npos);
}

TEST(DoctorRanks, CompareThoseWhoAreThere) {
  Gathered all = healthy();
  all.cards[0].reset();
  all.findings[0].reset();
  all.names = rankNames(all.cards);
  EXPECT_EQ(problemsOf(all), Names{});
  EXPECT_EQ(merge(all).witnesses.size(), 2u);
  for (auto& one : all.cards) one.reset();
  EXPECT_TRUE(compare(all).empty());
}

TEST(DoctorRanks, ReadWhatTheyWrite) {
  Card before = card("a");
  before.variables["NCCL_ALGO"] = "a \"quoted\"\n\xff thing";
  before.doors[0].handle[5] = std::byte{0xa7};
  Card after;
  ASSERT_TRUE(decode(encode(before), &after).ok());
  EXPECT_EQ(after.settings, before.settings);
  EXPECT_EQ(after.doors[0].handle, before.doors[0].handle);
  EXPECT_EQ(encode(before).find('\n'), std::string::npos) << "one line";
  Findings found{{problem("x", "y", "z"), note("n", "m")}, {{3, "eth1", "why"}}};
  Findings read;
  ASSERT_TRUE(decode(encode(found), &read).ok());
  EXPECT_EQ(read.checks, found.checks);
  EXPECT_EQ(read.unreached[0].why, "why");
}

TEST(DoctorRanks, RefuseWhatIsNoneOfTheirTexts) {
  const std::string good = encode(card("a"));
  Card out;
  for (std::size_t length = 0; length < good.size(); length += 7)
    EXPECT_FALSE(decode(good.substr(0, length), &out).ok()) << length;
  Findings findings;
  for (const char* text : {"", "[]", "{}", "7", "{\"checks\":[[1,2,3,4]],\"unreached\":[]}",
                           "{\"checks\":[],\"unreached\":[[\"a\"]]}", "\xff\xfe"}) {
    EXPECT_FALSE(decode(text, &findings).ok()) << text;
    EXPECT_FALSE(decode(text, &out).ok()) << text;
  }
  std::string handle = good;
  handle.replace(handle.find("000000"), 2, "zz");
  EXPECT_FALSE(decode(handle, &out).ok());
}

TEST(DoctorLines, AreFoundAmongWhatShellsPrint) {
  std::string received = "Welcome\n" + markedLine("one") + "prompt$ " + markedLine("two") + "@cgx-doctor thr";
  EXPECT_EQ(takeMarkedLine(&received), "one");
  EXPECT_EQ(takeMarkedLine(&received), "two");
  EXPECT_EQ(takeMarkedLine(&received), std::nullopt);
  received += "ee\nrest";
  EXPECT_EQ(takeMarkedLine(&received), "three");
  EXPECT_EQ(received, "rest");
}

TEST(DoctorLines, CarryAnAllGatherAndTellWhenTheOtherSideHasEnded) {
  int there[2], back[2];
  ASSERT_EQ(::pipe(there), 0);
  ASSERT_EQ(::pipe(back), 0);
  const auto rendezvous = overLines(back[0], there[1]);
  const std::string answer = "noise\n" + markedLine(packParts({"a", "", "c\n\"d\""}));
  ASSERT_EQ(::write(back[1], answer.data(), answer.size()), static_cast<ssize_t>(answer.size()));
  const auto parts = rendezvous->allGather("mine");
  ASSERT_TRUE(parts.ok());
  EXPECT_EQ(parts.value(), (std::vector<std::string>{"a", "", "c\n\"d\""}));
  char said[64] = "";
  EXPECT_GT(::read(there[0], said, sizeof said - 1), 0);
  EXPECT_EQ(std::string(said), markedLine("mine"));
  ASSERT_GT(::write(back[1], "@cgx-doctor {\n", 14), 0);
  EXPECT_FALSE(rendezvous->allGather("mine").ok()) << "no list";
  ::close(back[1]);
  const auto ended = rendezvous->allGather("mine");
  EXPECT_NE(ended.status().text().find("has ended"), std::string::npos);
  for (const int fd : {there[0], there[1], back[0]}) ::close(fd);
}

TEST(DoctorHostsCommand, IsQuotedForTheShellsThatReadIt) {
  HostsPlan plan;
  plan.hosts = {"user@node-1.x", "[fe80::1%eth0]"};
  plan.words = {"env", "A=it's", "/opt/my cgx"};
  EXPECT_EQ(commandLine(plan, 0).value(),
            "ssh -T -o BatchMode=yes -o ConnectTimeout=10 user@node-1.x "
            R"('env '\''A=it'\''\'\'''\''s'\'' '\''/opt/my cgx'\'' --member 0')");
  plan.launcher = "docker exec -i {host}";
  EXPECT_EQ(commandLine(plan, 1).value(),
            R"(docker exec -i '[fe80::1%eth0]' env 'A=it'\''s' '/opt/my cgx' --member 1)");
}

TEST(DoctorHostsCommand, RefusesNamesAndLaunchersThatAShellWouldTakeOtherwise) {
  HostsPlan plan;
  for (const char* name : {"", "-oProxyCommand=x", "a;b", "a b", "$(x)", "a'b"}) {
    plan.hosts = {name};
    EXPECT_FALSE(commandLine(plan, 0).ok()) << name;
  }
  plan.hosts = {"a"};
  plan.launcher = "rsh";
  EXPECT_NE(commandLine(plan, 0).status().text().find("{host}"), std::string::npos);
}

TEST(DoctorHostsCommand, HandsOnVariablesAsTheyAreHereOrAsGiven) {
  const Lookup here = [](const char* name) { return std::string(name) == "CGX_BITS" ? "3" : nullptr; };
  EXPECT_EQ(exported({"CGX_BITS", "CGX_MODE=always", "EMPTY="}, here).value(),
            (std::vector<std::string>{"env", "CGX_BITS=3", "CGX_MODE=always", "EMPTY="}));
  EXPECT_TRUE(exported({}, here).value().empty());
  for (const char* bad : {"CGX_NONE", "=3", "1A=2", "A-B=1", ""}) EXPECT_FALSE(exported({bad}, here).ok()) << bad;
}

}  // namespace
}  // namespace cgx::tool::doctor
