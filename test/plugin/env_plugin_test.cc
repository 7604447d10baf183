// The env plugin, and the same from net's init where NCCL has no env plugins: what NCCL is answered, who wins, how long
// an answer lives. Each case runs in a child, as it changes the environment and what the library remembers.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <thread>

#include "plugin/env_api.h"
#include "test/plugin/net_driver.h"
#include "test/plugin/process.h"

namespace cgx::test {
namespace {

/// Runs `body` in a child with this environment and nothing of NCCL's or ours beside it.
void inChild(const std::vector<std::pair<std::string, std::string>>& variables, const std::function<void()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    for (const char* name : {"NCCL_NET_PLUGIN", "NCCL_TUNER_PLUGIN", "NCCL_COLLNET_ENABLE", "NCCL_HOSTID",
                             "NCCL_NET_PLUGIN_REF_COUNT", "CGX_INTRA", "CGX_GDR", "LOCAL_RANK"})
      unsetenv(name);
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
    body();
    _exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
}

const std::pair<std::string, std::string> kNamed{"NCCL_NET_PLUGIN", "cgx"};

std::string said(const char* value) { return value == nullptr ? "unset" : value; }

template <class Env>
class EnvVersions : public ::testing::Test {
 protected:
  static constexpr bool kLogs = std::is_same_v<Env, ncclEnv_v2_t>;
  static const Env* table(const Library& library) {
    return library.symbol<const Env>(kLogs ? "ncclEnvPlugin_v2" : "ncclEnvPlugin_v1");
  }
  static ncclResult_t init(const Env* env, int major, int minor, int patch, ncclDebugLogger_t log = nullptr) {
    const auto byte = [](int n) { return static_cast<std::uint8_t>(n); };
    if constexpr (kLogs)
      return env->init(byte(major), byte(minor), byte(patch), "", log);
    else
      return env->init(byte(major), byte(minor), byte(patch), nullptr);
  }
};
using Envs = ::testing::Types<ncclEnv_v1_t, ncclEnv_v2_t>;
TYPED_TEST_SUITE(EnvVersions, Envs);

TYPED_TEST(EnvVersions, AJobThatNamesUsIsToldWhatItNeedsAndAllElsePassesThrough) {
  inChild({kNamed, {"CGX_SOME", "thing"}, {"EMPTY", ""}}, [] {
    Library library(CGX_LIBRARY);
    const auto* env = TestFixture::table(library);
    ASSERT_NE(env, nullptr);
    EXPECT_STREQ(env->name, "CGX");
    ASSERT_EQ(TestFixture::init(env, 2, 28, 9), ncclSuccess);
    EXPECT_EQ(said(env->getEnv("NCCL_COLLNET_ENABLE")), "1");
    EXPECT_EQ(said(env->getEnv("NCCL_NET_PLUGIN_REF_COUNT")), "1");
    EXPECT_EQ(said(env->getEnv("NCCL_HOSTID")), "unset");
    EXPECT_EQ(said(env->getEnv("NCCL_NET_GDR_LEVEL")), "unset");
    EXPECT_EQ(said(env->getEnv("NCCL_NET_PLUGIN")), "cgx");
    EXPECT_EQ(said(env->getEnv("CGX_SOME")), "thing");
    EXPECT_EQ(said(env->getEnv("EMPTY")), "");
    EXPECT_EQ(said(env->getEnv("NCCL_DEBUG_FILE_NOT_SET")), "unset");
    EXPECT_EQ(env->getEnv("PATH"), getenv("PATH")) << "not a copy";
    EXPECT_EQ(env->getEnv(nullptr), nullptr);
    EXPECT_EQ(said(getenv("NCCL_COLLNET_ENABLE")), "unset") << "the process's environment stays as it was";
    EXPECT_EQ(env->finalize(), ncclSuccess);
    EXPECT_EQ(said(env->getEnv("NCCL_COLLNET_ENABLE")), "1") << "after finalize";
  });
}

TYPED_TEST(EnvVersions, AnotherJobSeesItsEnvironmentOnly) {
  for (const char* other : {"none", "libnccl-net.so", "ofi"}) {
    inChild({{"NCCL_NET_PLUGIN", other}, {"CGX_INTRA", "on"}, {"LOCAL_RANK", "0"}}, [] {
      Library library(CGX_LIBRARY);
      const auto* env = TestFixture::table(library);
      ASSERT_EQ(TestFixture::init(env, 2, 30, 7, &Captured::log), ncclSuccess);
      for (const char* name : {"NCCL_COLLNET_ENABLE", "NCCL_NET_PLUGIN_REF_COUNT", "NCCL_HOSTID"})
        EXPECT_EQ(said(env->getEnv(name)), "unset") << name;
      EXPECT_TRUE(Captured::take(NCCL_LOG_WARN).empty());
    });
  }
}

TYPED_TEST(EnvVersions, TheUserWinsNowAndLater) {
  inChild({kNamed, {"NCCL_COLLNET_ENABLE", "0"}, {"NCCL_NET_PLUGIN_REF_COUNT", ""}}, [] {
    Library library(CGX_LIBRARY);
    const auto* env = TestFixture::table(library);
    ASSERT_EQ(TestFixture::init(env, 2, 28, 7), ncclSuccess);
    EXPECT_EQ(said(env->getEnv("NCCL_COLLNET_ENABLE")), "0");
    EXPECT_EQ(said(env->getEnv("NCCL_NET_PLUGIN_REF_COUNT")), "");
    unsetenv("NCCL_COLLNET_ENABLE");
    EXPECT_EQ(said(env->getEnv("NCCL_COLLNET_ENABLE")), "1");
    setenv("NCCL_COLLNET_ENABLE", "7", 1);
    EXPECT_EQ(said(env->getEnv("NCCL_COLLNET_ENABLE")), "7");
  });
}

TYPED_TEST(EnvVersions, TheRemedyOfForgetfulVersionsIsForThemOnly) {
  const std::pair<std::array<int, 3>, const char*> rows[] = {
      {{2, 28, 7}, "1"}, {{2, 29, 7}, "1"}, {{2, 30, 3}, "unset"}, {{2, 31, 0}, "unset"}};
  for (const auto& [version, expected] : rows)
    inChild({kNamed}, [&, &v = version, &e = expected] {
      Library library(CGX_LIBRARY);
      const auto* env = TestFixture::table(library);
      ASSERT_EQ(TestFixture::init(env, v[0], v[1], v[2]), ncclSuccess);
      EXPECT_EQ(said(env->getEnv("NCCL_NET_PLUGIN_REF_COUNT")), e);
      EXPECT_EQ(said(env->getEnv("NCCL_COLLNET_ENABLE")), "1");
    });
}

TYPED_TEST(EnvVersions, EachProcessOfAHostHasItsOwnStableId) {
  std::string ids[2];
  for (int rank = 0; rank < 2; ++rank) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    inChild({kNamed, {"CGX_INTRA", "on"}, {"LOCAL_RANK", std::to_string(rank)}}, [&] {
      Library library(CGX_LIBRARY);
      const auto* env = TestFixture::table(library);
      ASSERT_EQ(TestFixture::init(env, 2, 28, 9), ncclSuccess);
      const std::string id = said(env->getEnv("NCCL_HOSTID"));
      EXPECT_EQ(id, said(env->getEnv("NCCL_HOSTID")));
      EXPECT_EQ(write(ends[1], id.data(), id.size()), static_cast<ssize_t>(id.size()));
    });
    close(ends[1]);
    char text[1024] = {};
    const ssize_t got = read(ends[0], text, sizeof text - 1);
    close(ends[0]);
    ids[rank] = std::string(text, got > 0 ? static_cast<std::size_t>(got) : 0);
  }
  if (ids[0] == "unset" && ids[1] == "unset") GTEST_SKIP() << "this host's GPUs reach one another: no ids there";
  EXPECT_TRUE(ids[0].starts_with("cgx:")) << ids[0];
  EXPECT_NE(ids[0], ids[1]);
  EXPECT_EQ(ids[0].substr(0, ids[0].size() - 1), ids[1].substr(0, ids[1].size() - 1)) << "the same but for the rank";
}

TYPED_TEST(EnvVersions, AnAnswerStaysValidWhateverElseIsAsked) {
  inChild({kNamed}, [] {
    Library library(CGX_LIBRARY);
    const auto* env = TestFixture::table(library);
    ASSERT_EQ(TestFixture::init(env, 2, 28, 9), ncclSuccess);
    const char* first = env->getEnv("NCCL_COLLNET_ENABLE");
    std::vector<std::thread> threads;
    std::atomic<int> wrong{0};
    for (int i = 0; i < 4; ++i)
      threads.emplace_back([&] {
        for (int k = 0; k < 20000; ++k)
          for (const char* name : {"NCCL_COLLNET_ENABLE", "NCCL_NET_PLUGIN_REF_COUNT"}) {
            const char* value = env->getEnv(name);
            if (value == nullptr || std::string(value) != "1") ++wrong;
          }
      });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wrong.load(), 0);
    EXPECT_STREQ(first, "1");
    ASSERT_EQ(TestFixture::init(env, 2, 28, 9), ncclSuccess) << "a second init";
    EXPECT_STREQ(first, "1");
  });
}

TYPED_TEST(EnvVersions, AProgramMayNameUsAfterNcclsFirstCall) {
  inChild({}, [] {
    Library library(CGX_LIBRARY);
    const auto* env = TestFixture::table(library);
    ASSERT_EQ(TestFixture::init(env, 2, 28, 9), ncclSuccess);
    EXPECT_EQ(said(env->getEnv("NCCL_COLLNET_ENABLE")), "unset");
    setenv("NCCL_NET_PLUGIN", "libnccl-net-cgx.so", 1);
    EXPECT_EQ(said(env->getEnv("NCCL_COLLNET_ENABLE")), "1");
  });
}

TYPED_TEST(EnvVersions, ABadSettingCostsTheJobNothing) {
  inChild({kNamed, {"CGX_BITS", "77"}}, [] {
    Library library(CGX_LIBRARY);
    const auto* env = TestFixture::table(library);
    ASSERT_EQ(TestFixture::init(env, 2, 28, 9), ncclSuccess);
    EXPECT_EQ(said(env->getEnv("NCCL_COLLNET_ENABLE")), "1");
  });
}

#ifndef CGX_SANITIZED
TYPED_TEST(EnvVersions, NothingIsLeftAfterDlclose) {
  inChild({kNamed}, [] {
    const auto once = [] {
      Library library(CGX_LIBRARY);
      const auto* env = TestFixture::table(library);
      EXPECT_EQ(TestFixture::init(env, 2, 28, 9), ncclSuccess);
      EXPECT_EQ(said(env->getEnv("NCCL_COLLNET_ENABLE")), "1");
      EXPECT_EQ(env->finalize(), ncclSuccess);
    };
    once();
    const std::size_t before = heapBytes();
    for (int i = 0; i < 20; ++i) once();
    EXPECT_LT(heapBytes(), before + 20 * 1500) << "the loader itself keeps some 700 bytes a dlopen";
    EXPECT_FALSE(isMapped("libnccl-net-cgx"));
  });
}
#endif

// ---- with net's init

std::vector<std::string>& warnings() {
  static std::vector<std::string> all;
  return all;
}
void receive(int level, const char* text) {
  if (level == NCCL_LOG_WARN) warnings().push_back(text);
}

/// Net's init of one ABI version, called by an NCCL of one version.
template <class Table>
void initFrom(int code) {
  Library nccl(CGX_FAKE_NCCL);
  nccl.symbol<void(int, void (*)(int, const char*))>("fakeNcclBe")(code, &receive);
  const auto log = reinterpret_cast<ncclDebugLogger_t>(nccl.symbol<void>("fakeNcclLog"));
  Library library(CGX_LIBRARY);
  NetDriver<Table> net(library);
  EXPECT_EQ(net.init(log), ncclSuccess);
  EXPECT_EQ(net.init(log), ncclSuccess);
}

TEST(InTimeFromInit, UpTo226TheFirstInitSwitchesCollnetOnWithoutAWarning) {
  const std::pair<int, void (*)(int)> rows[] = {{21805, initFrom<ncclNet_v6_t>},
                                                {21903, initFrom<ncclNet_v7_t>},
                                                {22105, initFrom<ncclNet_v8_t>},
                                                {22403, initFrom<ncclNet_v9_t>},
                                                {22606, initFrom<ncclNet_v10_t>}};
  for (const auto& [code, init] : rows)
    inChild({kNamed}, [&, c = code, f = init] {
      f(c);
      EXPECT_EQ(said(getenv("NCCL_COLLNET_ENABLE")), "1") << c;
      EXPECT_TRUE(warnings().empty()) << c << ": " << warnings().front();
    });
}

TEST(InTimeFromInit, LaterItChangesNothingAndWarnsOnceWithTheRemedy) {
  const std::pair<int, void (*)(int)> rows[] = {{22707, initFrom<ncclNet_v10_t>},
                                                {22803, initFrom<ncclNet_v11_t>},
                                                {22809, initFrom<ncclNet_v11_t>},
                                                {23007, initFrom<ncclNet_v12_t>}};
  for (const auto& [code, init] : rows)
    inChild({kNamed}, [&, c = code, f = init] {
      f(c);
      EXPECT_EQ(said(getenv("NCCL_COLLNET_ENABLE")), "unset") << c;
      ASSERT_EQ(warnings().size(), 1U) << c;
      EXPECT_NE(warnings()[0].find("NCCL_COLLNET_ENABLE=1"), std::string::npos) << warnings()[0];
      EXPECT_EQ(warnings()[0].find("libnccl-env.so") != std::string::npos, c >= 22807) << warnings()[0];
    });
}

TEST(InTimeFromInit, WithoutAVersionTheSignatureDecides) {
  // The logger of this program leads to no NCCL.
  const auto init = []<class Table>(const Table*) {
    Library library(CGX_LIBRARY);
    NetDriver<Table> net(library);
    EXPECT_EQ(net.init(), ncclSuccess);
    return Captured::take(NCCL_LOG_WARN).size();
  };
  inChild({kNamed}, [&] {
    EXPECT_EQ(init(static_cast<const ncclNet_v9_t*>(nullptr)), 0U);
    EXPECT_EQ(said(getenv("NCCL_COLLNET_ENABLE")), "1");
  });
  inChild({kNamed}, [&] {
    EXPECT_EQ(init(static_cast<const ncclNet_v10_t*>(nullptr)), 1U) << "2.26 or 2.27: not to be mixed among ranks";
    EXPECT_EQ(said(getenv("NCCL_COLLNET_ENABLE")), "unset");
  });
}

TEST(InTimeFromInit, AVersionThatDoesNotFitTheSignatureIsNotBelieved) {
  inChild({kNamed}, [] {
    initFrom<ncclNet_v12_t>(22105);
    EXPECT_EQ(said(getenv("NCCL_COLLNET_ENABLE")), "unset");
  });
}

TEST(InTimeFromInit, AJobThatDoesNotNameUsKeepsItsEnvironment) {
  inChild({}, [] {
    initFrom<ncclNet_v8_t>(22105);
    EXPECT_EQ(said(getenv("NCCL_COLLNET_ENABLE")), "unset");
    EXPECT_TRUE(warnings().empty());
  });
}

TEST(InTimeFromInit, TheUsersValueStaysAndOffIsNamedOnce) {
  inChild({kNamed, {"NCCL_COLLNET_ENABLE", "0"}}, [] {
    initFrom<ncclNet_v8_t>(22105);
    EXPECT_EQ(said(getenv("NCCL_COLLNET_ENABLE")), "0");
    ASSERT_EQ(warnings().size(), 1U);
    EXPECT_NE(warnings()[0].find("switches collnet plugins off"), std::string::npos) << warnings()[0];
  });
}

TEST(InTimeFromInit, AnInitThatFailsChangesNothing) {
  inChild({kNamed, {"NCCL_SOCKET_IFNAME", "=nonexistent0"}}, [] {
    Library library(CGX_LIBRARY);
    NetDriver<ncclNet_v8_t> net(library);
    EXPECT_NE(net.init(), ncclSuccess);
    EXPECT_EQ(said(getenv("NCCL_COLLNET_ENABLE")), "unset");
  });
}

TEST(InTimeFromInit, IdsOfProcessesAreSetThereToo) {
  inChild({kNamed, {"CGX_INTRA", "on"}}, [] {
    initFrom<ncclNet_v8_t>(22105);
    EXPECT_EQ(said(getenv("NCCL_HOSTID")), "unset");
    ASSERT_EQ(warnings().size(), 1U) << "no launcher numbered this process";
    EXPECT_NE(warnings()[0].find("CGX_INTRA"), std::string::npos) << warnings()[0];
  });
  inChild({kNamed, {"CGX_INTRA", "on"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "2"}, {"NCCL_HOSTID", "cgx:of:a:parent"}}, [] {
    initFrom<ncclNet_v8_t>(22105);
    const std::string id = said(getenv("NCCL_HOSTID"));
    EXPECT_TRUE(id.ends_with(":2") || !warnings().empty()) << id;
  });
}

TEST(InTimeFromInit, NoWarningWhereTheEnvPluginHasAnswered) {
  inChild({kNamed, {"NCCL_DEBUG", "INFO"}}, [] {
    Library library(CGX_LIBRARY);
    const auto* env = library.symbol<const ncclEnv_v1_t>("ncclEnvPlugin_v1");
    ASSERT_EQ(env->init(2, 28, 9, ""), ncclSuccess);
    NetDriver<ncclNet_v11_t> net(library);
    ASSERT_EQ(net.init(), ncclSuccess);
    EXPECT_TRUE(Captured::take(NCCL_LOG_WARN).empty());
    EXPECT_EQ(said(getenv("NCCL_COLLNET_ENABLE")), "unset");
  });
  inChild({kNamed, {"NCCL_COLLNET_ENABLE", "0"}}, [] {
    Library library(CGX_LIBRARY);
    const auto* env = library.symbol<const ncclEnv_v1_t>("ncclEnvPlugin_v1");
    ASSERT_EQ(env->init(2, 28, 9, ""), ncclSuccess);
    NetDriver<ncclNet_v11_t> net(library);
    ASSERT_EQ(net.init(), ncclSuccess);
    EXPECT_EQ(Captured::take(NCCL_LOG_WARN).size(), 1U) << "the user has switched it off";
  });
}

TEST(InTimeFromInit, AskingForGpuMemoryIsAnsweredWithOneWarning) {
  inChild({kNamed, {"CGX_GDR", "on"}}, [] {
    initFrom<ncclNet_v8_t>(22105);
    ASSERT_EQ(warnings().size(), 1U);
    EXPECT_NE(warnings()[0].find("CGX_GDR=on has no effect"), std::string::npos) << warnings()[0];
  });
}

}  // namespace
}  // namespace cgx::test
