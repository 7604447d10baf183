// The library's life in a process: loaded again and again, copied, forked with, exited with. Runs over the library that
// users load.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>

#include "test/plugin/net_driver.h"
#include "test/plugin/process.h"

namespace cgx::test {
namespace {

constexpr std::size_t kMegabyte = 1 << 20;

template <class Net>
void transfer(NetDriver<Net>& net, void* sendComm, void* recvComm, std::size_t bytes = kMegabyte) {
  std::vector<unsigned char> out(bytes, 0x5A);
  std::vector<unsigned char> in(bytes);
  void* receive = nullptr;
  void* send = nullptr;
  ASSERT_EQ(net.irecv(recvComm, {{in.data(), in.size()}}, {3}, &receive), ncclSuccess);
  ASSERT_EQ(net.isend(sendComm, out.data(), out.size(), 3, &send), ncclSuccess);
  ASSERT_TRUE(net.wait(receive));
  ASSERT_TRUE(net.wait(send));
  ASSERT_EQ(std::memcmp(in.data(), out.data(), bytes), 0);
}

template <class Net>
void oneLife() {
  Library library(CGX_LIBRARY);
  NetDriver<Net> net(library);
  ASSERT_EQ(net.init(), ncclSuccess);
  void* sendComm = nullptr;
  void* recvComm = nullptr;
  ASSERT_TRUE(net.pair(&sendComm, &recvComm));
  transfer(net, sendComm, recvComm);
  ASSERT_EQ(net.table->closeSend(sendComm), ncclSuccess);
  ASSERT_EQ(net.table->closeRecv(recvComm), ncclSuccess);
  ASSERT_EQ(net.finalize(), ncclSuccess);
}

template <class Net>
void fiftyLives() {
  for (int i = 0; i < 5; ++i) oneLife<Net>();  // the allocator's arenas and the loader's tables reach their size
  Captured::clear();
  const int threadsBefore = threads();
  const int descriptorsBefore = descriptors();
  const int mappingsBefore = mappings();
  const std::size_t heapBefore = heapBytes();
  for (int i = 0; i < 50; ++i) {
    ASSERT_NO_FATAL_FAILURE(oneLife<Net>());
    Captured::clear();
    ASSERT_TRUE(threadsBecome(threadsBefore)) << threads() << " threads after life " << i;
    ASSERT_EQ(descriptors(), descriptorsBefore) << "after life " << i;
    ASSERT_FALSE(isMapped("libnccl-net-cgx")) << "after life " << i;
  }
#ifndef CGX_SANITIZED  // a sanitizer maps memory of its own as it goes
  EXPECT_LE(mappings(), mappingsBefore + 2);
  EXPECT_LT(heapBytes(), heapBefore + 50 * 1500) << "the loader itself keeps some 700 bytes a dlopen";
#else
  static_cast<void>(heapBefore + static_cast<std::size_t>(mappingsBefore));
#endif
  std::this_thread::sleep_for(std::chrono::seconds(1));  // a thread left behind would now run unmapped code
}

TEST(NetLife, FiftyLivesLeaveNothingBehindWithFinalize) { fiftyLives<ncclNet_v12_t>(); }
TEST(NetLife, FiftyLivesLeaveNothingBehindWithoutFinalize) { fiftyLives<ncclNet_v6_t>(); }

TEST(NetLife, FiveHundredInitsAreQuickAndCostLittle) {
  Library library(CGX_LIBRARY);
  std::vector<std::unique_ptr<NetDriver<ncclNet_v12_t>>> all;
  NetDriver<ncclNet_v12_t> first(library);
  ASSERT_EQ(first.init(), ncclSuccess);
  const int threadsBefore = threads();
  const long residentBefore = residentKiB();
  const auto start = std::chrono::steady_clock::now();
  for (std::uint64_t i = 0; i < 500; ++i) {
    all.push_back(std::make_unique<NetDriver<ncclNet_v12_t>>(library));
    ASSERT_EQ(all.back()->init(&Captured::log, i), ncclSuccess);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  EXPECT_EQ(threads(), threadsBefore);
  EXPECT_LT(residentKiB() - residentBefore, 500 * 50);
  for (auto& net : all) EXPECT_EQ(net->finalize(), ncclSuccess);
  EXPECT_EQ(first.finalize(), ncclSuccess);
}

TEST(NetLife, AContextThatWasNeverFinalizedIsFreedWithTheLibrary) {
  const int before = descriptors();
  {
    Library library(CGX_LIBRARY);
    NetDriver<ncclNet_v12_t> net(library);
    ASSERT_EQ(net.init(), ncclSuccess);
    void* comm = nullptr;
    NetDriver<ncclNet_v12_t>::Handle handle{};
    void* listener = nullptr;
    ASSERT_EQ(net.listen(0, handle.data(), &listener), ncclSuccess);
    ASSERT_EQ(net.connect(0, handle.data(), &comm), ncclSuccess);  // unfinished
    ASSERT_EQ(net.table->closeListen(listener), ncclSuccess);
    if (comm != nullptr) net.table->closeSend(comm);
  }
  EXPECT_FALSE(isMapped("libnccl-net-cgx"));
  EXPECT_TRUE(descriptorsBecome(before)) << descriptors();
}

TEST(NetLife, ExitWithoutDestroyIsCleanWithWorkInFlight) {
  const pid_t child = fork();
  if (child == 0) {
    // Never destroyed: memory under a transfer must outlive it, and exit() ends the program's static objects before our
    // threads. Static, so that a leak checker finds them.
    static auto& library = *new Library(CGX_LIBRARY);
    static auto& net = *new NetDriver<ncclNet_v11_t>(library);
    void* sendComm = nullptr;
    void* recvComm = nullptr;
    static auto& data = *new std::vector<unsigned char>(8 << 20);
    void* request = nullptr;
    if (net.init() != ncclSuccess || !net.pair(&sendComm, &recvComm)) _exit(10);
    net.irecv(recvComm, {{data.data(), data.size()}}, {1}, &request);
    net.isend(sendComm, data.data(), data.size(), 1, &request);
    net.isend(sendComm, data.data(), data.size(), 2, &request);
    exit(0);
  }
  int status = 0;
  const auto start = std::chrono::steady_clock::now();
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

class NetFork : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(net_.init(), ncclSuccess);
    ASSERT_TRUE(net_.pair(&send_, &recv_));
  }
  Library library_{CGX_LIBRARY};
  NetDriver<ncclNet_v12_t> net_{library_};
  void* send_ = nullptr;
  void* recv_ = nullptr;
};

TEST_F(NetFork, AChildThatExecsOrExitsLeavesTheParentUndisturbed) {
  for (int round = 0; round < 9; ++round) {
    const pid_t child = fork();
    if (child == 0) {
      if (round % 3 == 0) execl("/bin/true", "true", nullptr);
      if (round % 3 == 1) _exit(0);
      exit(0);
    }
    ASSERT_NO_FATAL_FAILURE(transfer(net_, send_, recv_));
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "round " << round;
    ASSERT_NO_FATAL_FAILURE(transfer(net_, send_, recv_));
  }
  EXPECT_EQ(net_.table->closeSend(send_), ncclSuccess);
  EXPECT_EQ(net_.table->closeRecv(recv_), ncclSuccess);
  EXPECT_EQ(net_.finalize(), ncclSuccess);
}

TEST_F(NetFork, NoDescriptorReachesAnExecedProgram) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], 1);
    close(ends[0]);
    close(ends[1]);
    execl("/bin/sh", "sh", "-c", "ls -l /proc/$$/fd | grep -c -e socket: -e eventpoll -e eventfd", nullptr);
    _exit(1);
  }
  close(ends[1]);
  char text[32] = {};
  ASSERT_GT(read(ends[0], text, sizeof text - 1), 0);
  close(ends[0]);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(std::atoi(text), 0) << text;
  EXPECT_EQ(net_.table->closeSend(send_), ncclSuccess);
  EXPECT_EQ(net_.table->closeRecv(recv_), ncclSuccess);
  EXPECT_EQ(net_.finalize(), ncclSuccess);
}

TEST_F(NetFork, AChildsCopiesDoNotHideACloseFromThePeer) {
  char byte = 0;
  void* request = nullptr;
  ASSERT_EQ(net_.irecv(recv_, {{&byte, 1}}, {0}, &request), ncclSuccess);
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  ASSERT_EQ(net_.table->closeSend(send_), ncclSuccess);
  const auto start = std::chrono::steady_clock::now();
  int done = 0;
  ncclResult_t result = ncclSuccess;
  while (result == ncclSuccess && std::chrono::steady_clock::now() - start < std::chrono::seconds(8))
    result = net_.table->test(request, &done, nullptr);
  EXPECT_EQ(result, ncclRemoteError);
  EXPECT_EQ(done, 0);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_EQ(net_.table->closeRecv(recv_), ncclSuccess);
  EXPECT_EQ(net_.finalize(), ncclSuccess);
}

class NetCopies : public ::testing::Test {
 protected:
  NetCopies() {
    std::string name = std::filesystem::temp_directory_path() / "cgx-copies-XXXXXX";
    folder_ = mkdtemp(name.data());
  }
  ~NetCopies() override {
    std::filesystem::remove_all(folder_);
    unsetenv("NCCL_NET_PLUGIN");
  }
  std::string copyAs(const std::string& name) {
    const std::string path = folder_ + "/" + name;
    std::filesystem::copy_file(CGX_LIBRARY, path);
    return path;
  }
  std::string folder_;
};

TEST_F(NetCopies, AByteCopyBesideTheOriginalHasItsOwnStateAndTalksToIt) {
  Library original(CGX_LIBRARY);
  Library copy(copyAs("libother.so"));
  NetDriver<ncclNet_v12_t> a(original);
  NetDriver<ncclNet_v12_t> b(copy);
  ASSERT_NE(a.table, b.table);
  ASSERT_EQ(b.init(), ncclSuccess);
  ASSERT_EQ(a.init(), ncclSuccess);
  NetDriver<ncclNet_v12_t>::Handle handle{};
  void* listener = nullptr;
  void* sendComm = nullptr;
  void* recvComm = nullptr;
  ASSERT_EQ(b.listen(0, handle.data(), &listener), ncclSuccess);
  const auto start = std::chrono::steady_clock::now();
  while ((sendComm == nullptr || recvComm == nullptr) &&
         std::chrono::steady_clock::now() - start < std::chrono::seconds(10)) {
    if (sendComm == nullptr) {
      ASSERT_EQ(a.connect(0, handle.data(), &sendComm), ncclSuccess);
    }
    if (recvComm == nullptr) {
      ASSERT_EQ(b.accept(listener, &recvComm), ncclSuccess);
    }
  }
  ASSERT_NE(sendComm, nullptr);
  ASSERT_NE(recvComm, nullptr);
  transfer(a, sendComm, recvComm);
  EXPECT_EQ(a.table->closeSend(sendComm), ncclSuccess);
  EXPECT_EQ(b.table->closeRecv(recvComm), ncclSuccess);
  EXPECT_EQ(b.table->closeListen(listener), ncclSuccess);
  EXPECT_EQ(a.finalize(), ncclSuccess);
  EXPECT_EQ(b.finalize(), ncclSuccess);
}

TEST_F(NetCopies, AsTheDefaultPluginItCarriesNetTrafficAndRefusesCollnetQuietly) {
  unsetenv("NCCL_NET_PLUGIN");
  Captured::clear();
  Library library(copyAs("libnccl-net.so"));
  NetDriver<ncclNet_v12_t> net(library);
  ASSERT_EQ(net.init(), ncclSuccess);
  const auto coll = library.symbol<const ncclCollNet_v12_t>("ncclCollNetPlugin_v12");
  ASSERT_NE(coll, nullptr);
  void* ctx = nullptr;
  EXPECT_NE(coll->init(&ctx, 1, &Captured::log), ncclSuccess);
  EXPECT_TRUE(Captured::take(NCCL_LOG_WARN).empty());
  void* sendComm = nullptr;
  void* recvComm = nullptr;
  ASSERT_TRUE(net.pair(&sendComm, &recvComm));
  transfer(net, sendComm, recvComm);
  EXPECT_EQ(net.table->closeSend(sendComm), ncclSuccess);
  EXPECT_EQ(net.table->closeRecv(recvComm), ncclSuccess);
  EXPECT_EQ(net.finalize(), ncclSuccess);
}

TEST_F(NetCopies, AnyPathToTheFileNamesIt) {
  const std::string path = copyAs("libwhatever.so");
  std::filesystem::create_symlink(path, folder_ + "/link.so");
  for (const std::string& value : {path, folder_ + "/link.so", "ofi," + path}) {
    setenv("NCCL_NET_PLUGIN", value.c_str(), 1);
    Library library(path);
    const auto coll = library.symbol<const ncclCollNet_v12_t>("ncclCollNetPlugin_v12");
    void* ctx = nullptr;
    EXPECT_EQ(coll->init(&ctx, 1, nullptr), ncclSuccess) << value;
    EXPECT_EQ(coll->finalize(ctx), ncclSuccess);
  }
}

}  // namespace
}  // namespace cgx::test
