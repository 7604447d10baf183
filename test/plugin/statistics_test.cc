// When statistics are said and written: at the end, at an interval, on request; and what must not happen meanwhile.
// Over fake collectives.
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "test/plugin/collnet_driver.h"
#include "test/plugin/process.h"

namespace cgx::test {
namespace {

namespace fs = std::filesystem;

class StatisticsLife : public ::testing::Test {
 protected:
  using Driver = CollDriver<ncclCollNet_v10_t>;

  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "cgx-%s%n-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    file_ = folder_ / "5-%.json";
    set("NCCL_NET_PLUGIN", "cgx");
    set("NCCL_COLLNET_ENABLE", "1");
    set("RANK", "5");
    std::string escaped;
    for (const char c : folder_.string()) escaped += c == '%' ? std::string("%%") : std::string(1, c);
    set("CGX_STATS_FILE", escaped + "/%r-%%.json");
  }
  void TearDown() override {
    driver_.reset();
    library_.reset();
    for (const std::string& name : set_) unsetenv(name.c_str());
    fs::remove_all(folder_);
  }
  void set(const std::string& name, const std::string& value) {
    setenv(name.c_str(), value.c_str(), 1);
    set_.push_back(name);
  }
  void load() {
    library_ = std::make_unique<Library>(CGX_LIBRARY);
    driver_ = std::make_unique<Driver>(*library_);
    ASSERT_EQ(driver_->init(), ncclSuccess);
    Captured::clear();
  }
  void unload() {
    ASSERT_EQ(driver_->finalize(), ncclSuccess);
    driver_.reset();
    library_.reset();
  }
  void* connect() {
    std::vector<Driver::Handle> handles(1);
    void* listener = nullptr;
    void* comm = nullptr;
    EXPECT_EQ(driver_->listen(0, handles[0].data(), &listener), ncclSuccess);
    EXPECT_EQ(driver_->connect(handles, 0, listener, &comm), ncclSuccess);
    EXPECT_EQ(driver_->table->closeListen(listener), ncclSuccess);
    return comm;
  }
  void close(void* comm) { EXPECT_EQ(driver_->table->closeColl(comm), ncclSuccess); }
  void reduce(void* comm, int times) {
    for (int i = 0; i < times; ++i) {
      void* request = nullptr;
      ASSERT_EQ(driver_->iallreduce(comm, in_, out_, 10, ncclFloat32, ncclSum, &request), ncclSuccess);
      ASSERT_TRUE(driver_->wait(request));
    }
  }
  nlohmann::json read() const {
    std::ifstream in(file_);
    return nlohmann::json::parse(in);
  }
  /// Bounded by a minute, far above what is needed.
  static bool becomes(const std::function<bool()>& true_) {
    for (int i = 0; i < 6000; ++i) {
      if (true_()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }

  fs::path folder_;
  fs::path file_;
  std::vector<std::string> set_;
  std::unique_ptr<Library> library_;
  std::unique_ptr<Driver> driver_;
  float in_[64] = {1, 2, 3};
  float out_[64] = {};
};

TEST_F(StatisticsLife, AtTheEndTheFileHoldsBothCommunicators) {
  load();
  void* first = connect();
  void* second = connect();
  reduce(first, 10);
  reduce(second, 3);
  EXPECT_FALSE(fs::exists(file_)) << "neither asked for nor at an end";
  close(first);
  nlohmann::json now = read();
  EXPECT_EQ(now["rank"], 5);
  EXPECT_EQ(now["pid"], ::getpid());
  ASSERT_EQ(now["communicators"].size(), 2U);
  EXPECT_EQ(now["communicators"][0]["id"], 0);
  EXPECT_EQ(now["communicators"][0]["open"], false);
  EXPECT_EQ(now["communicators"][0]["operations"], 10);
  EXPECT_EQ(now["communicators"][0]["inputBytes"], 400);
  EXPECT_EQ(now["communicators"][1]["open"], true);
  EXPECT_EQ(now["communicators"][1]["operations"], 3);
  close(second);
  now = read();
  EXPECT_EQ(now["communicators"][1]["open"], false);
  EXPECT_EQ(now["sums"]["operations"], 13);
  EXPECT_EQ(now["sums"]["wireBytes"], 260);
  const auto lines = Captured::take(NCCL_LOG_INFO);
  EXPECT_EQ(std::count_if(lines.begin(), lines.end(),
                          [](const std::string& l) { return l.find("operations, ") != std::string::npos; }),
            2);
  unload();
}

TEST_F(StatisticsLife, OnRequestTheFileAppears) {
  load();
  void* comm = connect();
  reduce(comm, 2);
  std::ofstream(file_.string() + ".request").put('\n');
  ASSERT_TRUE(becomes([&] { return fs::exists(file_); }));
  EXPECT_FALSE(fs::exists(file_.string() + ".request"));
  EXPECT_EQ(read()["communicators"][0]["operations"], 2);
  close(comm);
  unload();
}

TEST_F(StatisticsLife, AtEachIntervalTheSeriesGrows) {
  set("CGX_STATS_INTERVAL", "1");
  load();
  void* comm = connect();
  reduce(comm, 1);
  ASSERT_TRUE(becomes([&] { return fs::exists(file_) && read()["series"].size() >= 2; }));
  const auto lines = Captured::take(NCCL_LOG_INFO);
  EXPECT_TRUE(std::any_of(lines.begin(), lines.end(), [](const std::string& l) {
    return l.find("so far rank 0 of 1: 1 operations") != std::string::npos;
  }));
  close(comm);
  unload();
}

TEST_F(StatisticsLife, PrometheusIsWrittenWhenAsked) {
  set("CGX_STATS_FORMAT", "prometheus");
  load();
  void* comm = connect();
  close(comm);
  std::ifstream in(file_);
  std::string line;
  std::getline(in, line);
  EXPECT_EQ(line, "# HELP cgx_operations_total Collective operations.");
  unload();
}

TEST_F(StatisticsLife, AFolderThatIsNotThereCostsOneWarningAndNothingElse) {
  set("CGX_STATS_FILE", "/nonexistent-%%s%%n/%h/x.json");
  load();
  for (int i = 0; i < 3; ++i) {
    void* comm = connect();
    reduce(comm, 1);
    close(comm);
  }
  const auto warnings = Captured::take(NCCL_LOG_WARN);
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_NE(warnings[0].find("/nonexistent-%s%n/"), std::string::npos) << warnings[0];
  EXPECT_NE(warnings[0].find("No such file or directory"), std::string::npos) << warnings[0];
  EXPECT_NE(warnings[0].find("CGX_STATS_FILE"), std::string::npos) << warnings[0];
  unload();
}

TEST_F(StatisticsLife, WithoutFileAndIntervalThereIsNoThread) {
  unsetenv("CGX_STATS_FILE");
  load();
  const int before = threads();
  void* comm = connect();
  EXPECT_EQ(threads(), before);
  close(comm);
  unload();
}

TEST_F(StatisticsLife, FiftyReloadsLeaveNeitherThreadNorDescriptor) {
  set("CGX_STATS_INTERVAL", "3600");
  const auto round = [&] {
    load();
    const int without = threads();
    for (int i = 0; i < 2; ++i) {
      void* first = connect();
      void* second = connect();
      EXPECT_EQ(threads(), without + 1) << "one thread for all communicators";
      close(first);
      close(second);
      EXPECT_TRUE(threadsBecome(without));
    }
    unload();
  };
  round();
  const int threadsBefore = threads();
  const int descriptorsBefore = descriptors();
  for (int i = 0; i < 50; ++i) round();
  EXPECT_TRUE(threadsBecome(threadsBefore));
  EXPECT_TRUE(descriptorsBecome(descriptorsBefore)) << descriptors();
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
}

// Exit without close, with the thread there; and a child that was forked meanwhile closes what it inherited.
TEST_F(StatisticsLife, ExitAndForkWithOpenCommunicatorsEnd) {
  const pid_t process = ::fork();
  ASSERT_GE(process, 0);
  if (process == 0) {
    ::alarm(60);
    load();
    void* comm = connect();
    reduce(comm, 1);
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(30);
      close(comm);
      std::exit(fs::exists(file_) ? 1 : 0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    std::exit(status == 0 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(process, &status, 0), process);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

}  // namespace
}  // namespace cgx::test
