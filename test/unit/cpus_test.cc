// CPUs that we may use: quotas of both cgroup versions, wherever in the hierarchy they sit, and affinity.
#include "base/cpus.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <filesystem>
#include <fstream>
#include <semaphore>
#include <thread>

namespace cgx {
namespace {

namespace fs = std::filesystem;

class Cgroups : public ::testing::Test {
 protected:
  Cgroups() : root_(fs::path(::testing::TempDir()) / ("cgroups" + std::to_string(::getpid()))) {
    fs::create_directories(root_);
  }
  ~Cgroups() override { fs::remove_all(root_); }
  void write(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  double cpus(const std::string& membership) const { return cgroupCpus(membership, root_.string()); }

  fs::path root_;
};

TEST_F(Cgroups, NothingMountedIsNoLimit) {
  EXPECT_EQ(cpus("0::/\n"), 0);
  EXPECT_EQ(cpus(""), 0);
  EXPECT_EQ(cpus("garbage\n::\n:"), 0);
}

TEST_F(Cgroups, Version2QuotaIsReadFromOwnGroup) {
  write("job/cpu.max", "250000 100000\n");
  EXPECT_EQ(cpus("0::/job\n"), 2.5);
}

TEST_F(Cgroups, Version2MaxIsNoLimit) {
  write("job/cpu.max", "max 100000\n");
  EXPECT_EQ(cpus("0::/job\n"), 0);
}

TEST_F(Cgroups, TheSmallestLimitUpTheTreeCounts) {
  write("a/b/c/cpu.max", "800000 100000\n");
  write("a/b/cpu.max", "max 100000\n");
  write("a/cpu.max", "300000 100000\n");
  EXPECT_EQ(cpus("0::/a/b/c\n"), 3);
}

TEST_F(Cgroups, AContainerThatSeesTheHostsPathStillFindsItsMount) {
  write("cpu.max", "150000 100000\n");
  EXPECT_EQ(cpus("0::/docker/0123abcd\n"), 1.5);
}

TEST_F(Cgroups, Version1QuotaIsReadForTheCpuController) {
  write("cpu,cpuacct/job/cpu.cfs_quota_us", "400000\n");
  write("cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cpus("12:cpuset:/job\n4:cpu,cpuacct:/job\n"), 4);
  write("cpu,cpuacct/job/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(cpus("4:cpu,cpuacct:/job\n"), 0);
}

TEST_F(Cgroups, CpusetIsNotTheCpuController) {
  write("cpu/job/cpu.cfs_quota_us", "400000\n");
  write("cpu/job/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cpus("12:cpuset:/job\n"), 0);
  EXPECT_EQ(cpus("12:cpu:/job\n"), 4);
}

TEST(AllowedCpus, FollowTheAffinityMask) {
  EXPECT_GE(allowedCpus(), 1);
  EXPECT_LE(allowedCpus(), static_cast<int>(std::thread::hardware_concurrency()));
  std::thread([] {
    const int first = ::sched_getcpu();
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<std::size_t>(first), &one);
    ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
    EXPECT_EQ(allowedCpus(), 1);
  }).join();
}

std::vector<int> cpusOf(pthread_t thread) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  EXPECT_EQ(::pthread_getaffinity_np(thread, sizeof mask, &mask), 0);
  std::vector<int> cpus;
  for (std::size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &mask)) cpus.push_back(static_cast<int>(cpu));
  return cpus;
}

TEST(Affinity, OfTheCallingThreadIsListed) {
  const std::vector<int> mine = affinityCpus();
  EXPECT_EQ(mine, cpusOf(::pthread_self()));
  EXPECT_FALSE(mine.empty());
}

TEST(Affinity, OfOneThreadIsNarrowedAndNoOthers) {
  const std::vector<int> mine = affinityCpus();
  const std::vector<int> last{mine.back()};
  std::binary_semaphore leave{0};
  std::thread other([&] { leave.acquire(); });
  EXPECT_TRUE(keepTo(other.native_handle(), last));
  EXPECT_EQ(cpusOf(other.native_handle()), last);
  EXPECT_EQ(affinityCpus(), mine);
  EXPECT_TRUE(keepTo(other.native_handle(), {}));
  EXPECT_EQ(cpusOf(other.native_handle()), last) << "none: changes nothing";
  leave.release();
  other.join();
}

TEST(Affinity, ToCpusThatAreNotThereIsRefusedAndChangesNothing) {
  const std::vector<int> mine = affinityCpus();
  EXPECT_FALSE(keepTo(::pthread_self(), {8000})) << "more CPUs than any kernel here is made for";
  EXPECT_EQ(affinityCpus(), mine);
  EXPECT_TRUE(keepTo(::pthread_self(), {mine.back(), 8000})) << "one of two is there";
  EXPECT_EQ(affinityCpus(), std::vector<int>{mine.back()});
  EXPECT_TRUE(keepTo(::pthread_self(), mine));
}

}  // namespace
}  // namespace cgx
