// `cgx doctor` as a user meets it: prepared broken set-ups are named, on one host and between ranks and hosts. Hosts
// are network namespaces; those tests need root and are skipped otherwise, with the reason.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "support/network_host.h"
#include "support/program.h"
#include "tools/rendezvous.h"

namespace cgx::tool::doctor {
namespace {

namespace fs = std::filesystem;
using test::Host;
using test::Outcome;
using test::Program;
using test::Variables;
using test::Words;

const Variables kGood{{"NCCL_NET_PLUGIN", CGX_PLUGIN_PATH}, {"NCCL_COLLNET_ENABLE", "1"}};

Variables with(Variables more) {
  more.insert(kGood.begin(), kGood.end());
  return more;
}
Words doctor(const Words& more = {}) {
  Words words{CGX_TOOL, "doctor"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}
Outcome run(const Variables& variables, const Words& more = {}) { return Program(doctor(more), variables).wait(); }
bool says(const Outcome& outcome, const std::string& what) { return outcome.text.find(what) != std::string::npos; }
std::string root() {
  int port = 0;
  Result<int> fd = listenAt("127.0.0.1", &port);
  EXPECT_TRUE(fd.ok());
  ::close(fd.value());
  return "127.0.0.1:" + std::to_string(port);
}

TEST(DoctorHost, ThatIsHealthyHasStatusZeroAndAllChecksInTheJson) {
  const fs::path json = fs::temp_directory_path() / ("cgx-doctor-" + std::to_string(::getpid()) + ".json");
  const Outcome outcome = run(kGood, {"--json", json.string(), "--comms", "3", "--nodes", "4"});
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  const nlohmann::json whole = nlohmann::json::parse(std::ifstream(json));
  fs::remove(json);
  EXPECT_EQ(whole.at("problems"), 0);
  std::string staging;
  for (const nlohmann::json& check : whole.at("witnesses").at(0).at("checks")) {
    EXPECT_NE(check.at("verdict"), "problem");
    if (check.at("check") == "staging") staging = check.at("text");
  }
  EXPECT_NE(staging.find("3 communicator(s) x "), std::string::npos) << staging;
  EXPECT_NE(staging.find("for 4 nodes"), std::string::npos) << staging;
}

TEST(DoctorHost, NamesEachBrokenSetUp) {
  struct Case {
    Variables variables;
    const char* message;
  };
  const std::vector<Case> cases{
      {{}, "NCCL_NET_PLUGIN is not set"},
      {{{"NCCL_NET_PLUGIN", "/nowhere/libnccl-net-cgx.so"}}, "/nowhere/libnccl-net-cgx.so: no such file"},
      {{{"NCCL_NET_PLUGIN", "cgxx"}}, "problem  library"},
      {{{"NCCL_NET_PLUGIN", "libc.so.6"}}, "libc.so.6 is another plugin"},
      {with({{"NCCL_COLLNET_ENABLE", "0"}}), "NCCL_COLLNET_ENABLE=0 (environment) leaves it off"},
      {with({{"NCCL_NET", "Socket"}}), "NCCL_NET=Socket"},
      {with({{"NCCL_SOCKET_IFNAME", "nothing0"}}), "problem  interfaces"},
      {with({{"CGX_BITS", "9"}}), "CGX_BITS=\"9\""},
      {with({{"CGX_BITZ", "4"}}), "CGX_BITZ is no setting"},
      {with({{"CGX_STAGING", "1000000000000"}, {"CGX_BLOCK_ELEMENTS", "4194304"}}), "problem  staging"},
  };
  for (const Case& one : cases) {
    const Outcome outcome = run(one.variables, {"--comms", "1000"});
    EXPECT_EQ(outcome.status, 1) << one.message;
    EXPECT_TRUE(says(outcome, one.message)) << one.message << "\n" << outcome.text;
    EXPECT_TRUE(says(outcome, "         -> ")) << outcome.text;
    EXPECT_FALSE(says(outcome, "cgx perf")) << outcome.text;
  }
}

TEST(DoctorHost, NamesATinyDevShm) {
  const Words words{
      "/bin/sh", "-c",
      "unshare -m sh -c 'mount -t tmpfs -o size=1m none /dev/shm || exit 77; exec \"$0\" doctor' " CGX_TOOL
      " || exit $?"};
  const Outcome outcome = Program(words, kGood).wait();
  if (outcome.status == 77 || says(outcome, "unshare")) GTEST_SKIP() << "needs the right to mount: " << outcome.text;
  EXPECT_EQ(outcome.status, 1);
  EXPECT_TRUE(says(outcome, "problem  /dev/shm     1 MiB")) << outcome.text;
}

std::vector<Outcome> ranks(int count, const std::function<Words(int)>& words,
                           const std::function<Variables(int)>& variables) {
  std::vector<Program> programs;
  for (int rank = 0; rank < count; ++rank) programs.emplace_back(doctor(words(rank)), variables(rank));
  std::vector<Outcome> outcomes;
  for (Program& program : programs) outcomes.push_back(program.wait());
  return outcomes;
}

std::function<Words(int)> byHand(int count, const std::string& at) {
  return
      [=](int rank) { return Words{"--rank", std::to_string(rank), "--nranks", std::to_string(count), "--root", at}; };
}

TEST(DoctorJob, WithDifferentBitsFailsOnEveryRankAndRankZeroNamesThem) {
  const std::vector<Outcome> outcomes = ranks(3, byHand(3, root()), [](int rank) {
    return with({{"CGX_BITS", rank == 1 ? "8" : "4"}});
  });
  for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.status, 1) << outcome.text;
  EXPECT_TRUE(says(outcomes[0], "problem  same settings CGX_BITS: 4 (rank 0 on ")) << outcomes[0].text;
  EXPECT_TRUE(says(outcomes[0], "8 (rank 1 on ")) << outcomes[0].text;
  EXPECT_EQ(outcomes[1].text, "");
}

TEST(DoctorJob, WithAProblemOnOneRankFailsOnEveryRankAndNamesIt) {
  const std::vector<Outcome> outcomes = ranks(2, byHand(2, root()), [](int rank) {
    return with({{"NCCL_COLLNET_ENABLE", rank == 1 ? "0" : "1"}});
  });
  for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.status, 1) << outcome.text;
  EXPECT_TRUE(says(outcomes[0], "leaves it off [rank 1 on ")) << outcomes[0].text;
}

TEST(DoctorJob, RunsUnderEachLauncher) {
  const std::string at = root();
  const std::string port = at.substr(at.rfind(':') + 1);
  const std::vector<std::function<Variables(const std::string&)>> launchers{
      [&](const std::string& rank) {
        return Variables{{"RANK", rank}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "localhost"}, {"MASTER_PORT", port}};
      },
      [&](const std::string& rank) {
        return Variables{
            {"OMPI_COMM_WORLD_RANK", rank}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
      },
      [&](const std::string& rank) {
        return Variables{{"SLURM_PROCID", rank},
                         {"SLURM_NTASKS", "2"},
                         {"SLURM_STEP_NODELIST", "localhost"},
                         {"SLURM_JOB_ID", std::to_string(::getpid())},
                         {"SLURM_STEP_ID", "0"}};
      }};
  for (const auto& launcher : launchers) {
    const std::vector<Outcome> outcomes = ranks(
        2, [](int) { return Words{}; }, [&](int rank) { return with(launcher(std::to_string(rank))); });
    EXPECT_EQ(outcomes[0].status, 0) << outcomes[0].text;
    EXPECT_EQ(outcomes[1].status, 0) << outcomes[1].text;
    EXPECT_TRUE(says(outcomes[0], "2 took part")) << outcomes[0].text;
    EXPECT_EQ(outcomes[1].text, "");
  }
}

TEST(DoctorJob, NamesARankThatNeverComes) {
  const Outcome outcome = run(kGood, {"--rank", "0", "--nranks", "3", "--root", root(), "--timeout", "0.3"});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_TRUE(says(outcome, "rank 1, 2 did not come")) << outcome.text;
  EXPECT_TRUE(says(outcome, "ok       library")) << "and what it can see by itself\n" << outcome.text;
  const Outcome lost = run(kGood, {"--rank", "1", "--nranks", "2", "--root", root(), "--timeout", "0.3"});
  EXPECT_EQ(lost.status, 1);
  EXPECT_TRUE(says(lost, "rank 0 does not answer")) << lost.text;
}

TEST(DoctorJob, LooksAtOneHostWhenToldToOrWhenThereIsOneRank) {
  const Variables slurm{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "64"}, {"SLURM_STEP_NODELIST", "localhost"}};
  EXPECT_EQ(run(with(slurm), {"--alone"}).status, 0);
  Variables one = slurm;
  one["SLURM_NTASKS"] = "1";
  EXPECT_EQ(run(with(one)).status, 0);
  EXPECT_EQ(run(kGood, {"--rank", "1"}).status, 2);
}

class DoctorHosts : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = test::whyNoNetworkHosts(); !why.empty()) GTEST_SKIP() << why;
    a_ = std::make_unique<Host>("a");
    b_ = std::make_unique<Host>("b");
    cable(*a_, "eth0", *b_, "eth0");
    a_->address("eth0", "10.77.0.1/24");
    b_->address("eth0", "10.77.0.2/24");
    a_->await("eth0", "UP"), b_->await("eth0", "UP");
  }
  /// Rank 0's outcome on a, rank 1's on b.
  std::pair<Outcome, Outcome> run(const Variables& onA, const Variables& onB) {
    const auto words = [](const char* rank) {
      return doctor({"--rank", rank, "--nranks", "2", "--root", "10.77.0.1:29555", "--reach", "3", "--timeout", "20"});
    };
    Program second(words("1"), onB, b_->name());
    Program first(words("0"), onA, a_->name());
    Outcome outcome = first.wait();
    return {std::move(outcome), second.wait()};
  }
  std::unique_ptr<Host> a_, b_;
};

TEST_F(DoctorHosts, ThatReachEachOtherHaveNoProblem) {
  const auto [first, second] = run(kGood, kGood);
  EXPECT_EQ(first.status, 0) << first.text;
  EXPECT_EQ(second.status, 0) << second.text;
  EXPECT_TRUE(says(first, "2 took part, on 2 host(s)")) << first.text;
  EXPECT_TRUE(says(first, "ok       reach        each host reaches each other")) << first.text;
}

TEST_F(DoctorHosts, AreToldWhichWayAFirewallClosesAndWhichPortsToOpen) {
  b_->ip("rule add ipproto tcp sport 29600-29610 blackhole");  // as a firewall that drops: nothing comes back
  const Variables ranged = with({{"CGX_PORT_RANGE", "29600-29610"}});
  const auto [first, second] = run(ranged, ranged);
  EXPECT_EQ(first.status, 1);
  EXPECT_EQ(second.status, 1);
  EXPECT_TRUE(says(first, "1 way(s) closed: from rank 0 on ")) << first.text;
  EXPECT_TRUE(says(first, "connect to 10.77.0.2:29600")) << first.text;
  EXPECT_TRUE(says(first, "let TCP ports 29600-29610 in")) << first.text;
}

TEST_F(DoctorHosts, AreToldWhenTheChosenInterfaceLeadsNowhere) {
  cable(*b_, "eth1", *a_, "other");
  b_->address("eth1", "10.99.0.2/24");
  a_->ip("link set other up");
  b_->await("eth1", "UP");
  const auto [first, second] = run(kGood, with({{"NCCL_SOCKET_IFNAME", "eth1"}}));
  EXPECT_EQ(first.status, 1);
  EXPECT_EQ(second.status, 1);
  EXPECT_TRUE(says(first, "2 way(s) closed")) << first.text;
  EXPECT_TRUE(says(first, "(eth1): connect to 10.99.0.2:")) << first.text;
  EXPECT_TRUE(says(first, "NCCL_SOCKET_IFNAME: eth1 (rank 1") || says(first, "eth1 (rank 1")) << first.text;
}

TEST_F(DoctorHosts, AreToldOfAnInterfaceThatIsDownOnOne) {
  cable(*b_, "eth1", *a_, "other");
  const auto [first, second] = run(kGood, with({{"NCCL_SOCKET_IFNAME", "eth1"}}));
  EXPECT_EQ(first.status, 1);
  EXPECT_EQ(second.status, 1);
  EXPECT_TRUE(says(first, "problem  interfaces")) << first.text;
  EXPECT_TRUE(says(first, "usable interfaces: 0 (rank 1 on ")) << first.text;
}

/// A launcher that is a script: what it does on `$host` with the command in `$1`.
class DoctorSsh : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(folder_);
    script("exec sh -c \"$1\"");
  }
  void TearDown() override { fs::remove_all(folder_); }
  void script(const std::string& body) {
    std::ofstream(ssh()) << "#!/bin/sh\nhost=$1; shift\necho \"Welcome to $host\"\n" << body << "\n";
    fs::permissions(ssh(), fs::perms::owner_all);
  }
  std::string ssh() const { return (folder_ / "ssh").string(); }
  Outcome run(const std::string& hosts, const Words& more = {}) {
    Words words{"--hosts",         hosts, "--launcher",           ssh() + " {host} {command}", "-x",
                "NCCL_NET_PLUGIN", "-x",  "NCCL_COLLNET_ENABLE=1"};
    words.insert(words.end(), more.begin(), more.end());
    return doctor::run(kGood, words);
  }
  fs::path folder_ = fs::temp_directory_path() / ("cgx-doctor-ssh-" + std::to_string(::getpid()));
};

TEST_F(DoctorSsh, FindsNothingWrongWithHostsThatAreAlikeAndPrintsItsCommands) {
  const fs::path json = folder_ / "report.json";
  const Outcome outcome = run("one,two", {"--json", json.string(), "--nodes", "4"});
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  EXPECT_TRUE(says(outcome, "# " + ssh() + " two 'env NCCL_NET_PLUGIN=")) << outcome.text;
  EXPECT_TRUE(says(outcome, "2 took part")) << outcome.text;
  EXPECT_TRUE(says(outcome, "for 4 nodes")) << outcome.text;
  const nlohmann::json whole = nlohmann::json::parse(std::ifstream(json));
  EXPECT_EQ(whole.at("witnesses").at(1).at("name"), "two");
  EXPECT_EQ(whole.at("together").at(0).at("check"), "together");
}

TEST_F(DoctorSsh, NamesTheHostsWithDifferentBits) {
  script("[ $host = two ] && export CGX_BITS=8\nexec sh -c \"$1\"");
  const Outcome outcome = run("one,two");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_TRUE(says(outcome, "problem  same settings CGX_BITS: 4 (one), 8 (two)")) << outcome.text;
}

TEST_F(DoctorSsh, NamesAProblemOfOneHost) {
  script("[ $host = two ] && export NCCL_SOCKET_IFNAME=nothing0\nexec sh -c \"$1\"");
  const Outcome outcome = run("one,two");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_TRUE(says(outcome, "problem  interfaces")) << outcome.text;
  EXPECT_TRUE(says(outcome, "[two]")) << outcome.text;
}

TEST_F(DoctorSsh, ReportsTheOthersWhenOneCannotBeAskedAndSaysWhy) {
  script(
      "[ $host = denied ] && { echo 'Permission denied (publickey).' >&2; exit 255; }\n"
      "[ $host = mute ] && exec sleep 100\n"
      "[ $host = babble ] && { echo '@cgx-doctor {}'; exec sleep 100; }\n"
      "[ $host = missing ] && exec /nowhere/cgx\n"
      "exec sh -c \"$1\"");
  const Outcome outcome = run("one,denied,mute,babble,missing,two", {"--timeout", "10"});
  EXPECT_EQ(outcome.status, 1);
  for (const char* what : {"denied: the command ended with status 255: Permission denied (publickey).",
                           "mute: the command did not answer within 10 s", "babble: the command sent what this version",
                           "missing: the command ended with status 127 (command not found)", "2 took part"})
    EXPECT_TRUE(says(outcome, what)) << what << "\n" << outcome.text;
}

TEST_F(DoctorSsh, SaysSoWithoutSsh) {
  const Outcome outcome = doctor::run(with({{"PATH", "/nowhere"}}), {"--hosts", "one"});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_TRUE(says(outcome, "one: the command ended with status 127 (command not found)")) << outcome.text;
  EXPECT_TRUE(says(outcome, "--launcher")) << outcome.text;
}

TEST_F(DoctorSsh, TakesItsLauncherFromTheEnvironmentWhichIsNoSettingOfTheLibrary) {
  const Variables variables = with({{"CGX_DOCTOR_LAUNCHER", ssh() + " {host} {command}"}});
  const Outcome outcome = doctor::run(variables, {"--hosts", "one", "-x", "NCCL_NET_PLUGIN", "-x", "CGX_BITS=3"});
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  EXPECT_EQ(doctor::run(variables).status, 0);
  EXPECT_EQ(doctor::run(variables, {"--hosts", "a;b"}).status, 2);
}

TEST_F(DoctorHosts, AreComparedOverALauncherThatNeedsNoPort) {
  b_->ip("rule add ipproto tcp sport 29600-29610 blackhole");
  const Outcome outcome =
      doctor::run(with({{"CGX_PORT_RANGE", "29600-29610"}}),
                  {"--hosts", a_->name() + "," + b_->name(), "--launcher", "ip netns exec {host}", "--reach", "3"});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_TRUE(says(outcome, "1 way(s) closed: from " + a_->name() + " to " + b_->name())) << outcome.text;
}

}  // namespace
}  // namespace cgx::tool::doctor
