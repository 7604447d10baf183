// The worker pool: every job runs once, urgent ones first, threads exist only while leases do.
#include "base/worker_pool.h"

#include <dirent.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <semaphore>
#include <set>
#include <thread>

namespace cgx {
namespace {

Settings withThreads(int threads) {
  Settings settings;
  settings.threads = threads;
  return settings;
}

WorkerPool::Lease acquired(const Settings& settings) {
  Result<WorkerPool::Lease> lease = WorkerPool::acquire(settings);
  EXPECT_TRUE(lease.ok()) << lease.status().text();
  return std::move(lease).value();
}

std::set<std::string> threadNames() {
  std::set<std::string> names;
  DIR* const tasks = ::opendir("/proc/self/task");
  while (const dirent* const entry = ::readdir(tasks)) {
    std::ifstream file("/proc/self/task/" + std::string(entry->d_name) + "/comm");
    std::string name;
    if (std::getline(file, name)) names.insert(name);
  }
  ::closedir(tasks);
  return names;
}

std::size_t workerNames() {
  std::size_t count = 0;
  for (const std::string& name : threadNames()) count += name.starts_with("cgx-worker-") ? 1U : 0U;
  return count;
}

/// A thread that was joined may be listed for another moment.
bool soon(const std::function<bool()>& holds) {
  for (int i = 0; i < 2000; ++i) {
    if (holds()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

struct Counting : Job {
  std::atomic<int>* total = nullptr;
  std::atomic<int> runs{0};
};
void count(Job* self) noexcept {
  auto& job = *static_cast<Counting*>(self);
  job.total->fetch_add(1);
  job.runs.fetch_add(1);  // last: who sees it may drop the job
}

/// Holds a worker until it is told to go on.
struct Gate : Job {
  Gate() {
    run = [](Job* self) noexcept { static_cast<Gate*>(self)->pass(); };
  }
  void pass() noexcept {
    entered.release();
    leave.acquire();
  }
  std::binary_semaphore entered{0};
  std::binary_semaphore leave{0};
};

struct Logging : Job {
  std::string* log = nullptr;
  char letter = ' ';
};
void logLetter(Job* self) noexcept { static_cast<Logging*>(self)->log->push_back(static_cast<Logging*>(self)->letter); }

TEST(WorkerPool, RunsEveryJobOncePostedFromManyThreads) {
  constexpr int kPosters = 4;
  constexpr int kJobs = 2000;
  std::atomic<int> total{0};
  std::vector<Counting> jobs(kPosters * kJobs);
  WorkerPool::Lease pool = acquired(withThreads(3));
  std::vector<std::thread> posters;
  for (int poster = 0; poster < kPosters; ++poster) {
    posters.emplace_back([&, poster] {
      for (int i = 0; i < kJobs; ++i) {
        Counting& job = jobs[static_cast<std::size_t>(poster * kJobs + i)];
        job.run = count;
        job.total = &total;
        pool->post(job, i % 3 == 0 ? Urgency::Urgent : Urgency::Normal);
        if (i % 500 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));  // lets workers fall asleep
      }
    });
  }
  for (std::thread& poster : posters) poster.join();
  EXPECT_TRUE(soon([&] { return total.load() == kPosters * kJobs; })) << total.load();
  pool.release();  // all have returned
  for (const Counting& job : jobs) ASSERT_EQ(job.runs.load(), 1);
}

TEST(WorkerPool, UrgentJobsOvertakeNormalOnesAndEachKindKeepsItsOrder) {
  std::string log;
  Gate gate;
  std::vector<Logging> jobs(6);
  {
    WorkerPool::Lease pool = acquired(withThreads(1));
    pool->post(gate, Urgency::Normal);
    gate.entered.acquire();
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      jobs[i].run = logLetter;
      jobs[i].log = &log;
      jobs[i].letter = "aAbBcC"[i];
      pool->post(jobs[i], i % 2 == 1 ? Urgency::Urgent : Urgency::Normal);
    }
    EXPECT_TRUE(log.empty());
    gate.leave.release();
  }
  EXPECT_EQ(log, "ABCabc");
}

TEST(WorkerPool, WhatIsQueuedWhenTheLastLeaseGoesStillRuns) {
  std::atomic<int> total{0};
  std::vector<Counting> jobs(100);
  Gate gate;
  WorkerPool::Lease pool = acquired(withThreads(1));
  pool->post(gate, Urgency::Normal);
  for (Counting& job : jobs) {
    job.run = count;
    job.total = &total;
    pool->post(job, Urgency::Normal);
  }
  gate.leave.release();
  pool.release();
  EXPECT_EQ(total.load(), 100);
}

TEST(WorkerPool, AJobMayPostItselfAgain) {
  struct Repeating : Job {
    WorkerPool* pool = nullptr;
    int left = 1000;
    std::binary_semaphore done{0};
  } job;
  job.run = [](Job* self) noexcept {
    auto& again = *static_cast<Repeating*>(self);
    if (--again.left > 0) {
      again.pool->post(again, Urgency::Normal);
    } else {
      again.done.release();
    }
  };
  WorkerPool::Lease pool = acquired(withThreads(2));
  job.pool = &*pool;
  pool->post(job, Urgency::Normal);
  job.done.acquire();
  EXPECT_EQ(job.left, 0);
}

TEST(WorkerPool, LeasesShareOnePoolWhoseSizeTheFirstDecides) {
  WorkerPool::Lease first = acquired(withThreads(2));
  WorkerPool::Lease second = acquired(withThreads(4));
  EXPECT_EQ(&*first, &*second);
  EXPECT_EQ(second->threads(), 2);
  first.release();
  first.release();
  EXPECT_FALSE(first);
  std::atomic<int> total{0};
  Counting job;
  job.run = count;
  job.total = &total;
  second->post(job, Urgency::Normal);
  second.release();
  EXPECT_EQ(total.load(), 1);
  WorkerPool::Lease third = acquired(withThreads(4));
  EXPECT_EQ(third->threads(), 4);
}

TEST(WorkerPool, MovingALeaseKeepsItsCount) {
  WorkerPool::Lease first = acquired(withThreads(1));
  WorkerPool::Lease second(std::move(first));
  WorkerPool::Lease third;
  third = std::move(second);
  ASSERT_TRUE(third);
  EXPECT_TRUE(soon([] { return workerNames() == 1; }));
  third.release();
  EXPECT_TRUE(soon([] { return workerNames() == 0; }));
}

TEST(WorkerPool, FiftyCyclesLeaveNoThread) {
  for (int cycle = 0; cycle < 50; ++cycle) {
    std::atomic<int> total{0};
    Counting job;
    job.run = count;
    job.total = &total;
    WorkerPool::Lease pool = acquired(withThreads(3));
    if (cycle % 2 == 0) pool->post(job, Urgency::Urgent);
    pool.release();
    EXPECT_EQ(total.load(), cycle % 2 == 0 ? 1 : 0);
  }
  EXPECT_TRUE(soon([] { return workerNames() == 0; }));
}

TEST(WorkerPool, ManyThreadsMayAcquireAndReleaseAtOnce) {
  std::atomic<int> total{0};
  std::vector<std::thread> users;
  for (int user = 0; user < 4; ++user) {
    users.emplace_back([&] {
      for (int i = 0; i < 50; ++i) {
        Counting job;
        job.run = count;
        job.total = &total;
        WorkerPool::Lease pool = acquired(withThreads(2));
        pool->post(job, Urgency::Normal);
        EXPECT_TRUE(soon([&] { return job.runs.load() == 1; }));
      }
    });
  }
  for (std::thread& user : users) user.join();
  EXPECT_EQ(total.load(), 200);
}

TEST(WorkerPool, ThreadsAreNamedAndCounted) {
  WorkerPool::Lease pool = acquired(withThreads(3));
  EXPECT_TRUE(soon([] { return workerNames() == 3; }));
  for (const char* name : {"cgx-worker-0", "cgx-worker-1", "cgx-worker-2"})
    EXPECT_TRUE(threadNames().contains(name)) << name;
}

TEST(WorkerPool, WorkersBlockEverySignalButFaultsAndTheCallerKeepsItsMask) {
  struct Asking : Job {
    sigset_t mask{};
    std::binary_semaphore done{0};
  } job;
  job.run = [](Job* self) noexcept {
    auto& asking = *static_cast<Asking*>(self);
    pthread_sigmask(SIG_BLOCK, nullptr, &asking.mask);
    asking.done.release();
  };
  WorkerPool::Lease pool = acquired(withThreads(1));
  pool->post(job, Urgency::Normal);
  job.done.acquire();
  for (const int signal : {SIGINT, SIGTERM, SIGCHLD, SIGUSR1, SIGALRM})
    EXPECT_EQ(sigismember(&job.mask, signal), 1) << signal;
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS})
    EXPECT_EQ(sigismember(&job.mask, fault), 0) << fault;
  sigset_t mine;
  pthread_sigmask(SIG_BLOCK, nullptr, &mine);
  EXPECT_EQ(sigismember(&mine, SIGTERM), 0);
}

TEST(WorkerPool, ExitWithALeaseHeldIsClean) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer calls every thread that lives at exit a leak, which is what this test makes";
#endif
  EXPECT_EXIT(
      {
        static WorkerPool::Lease* const kept = new WorkerPool::Lease(acquired(withThreads(2)));
        std::exit(kept->operator bool() ? 7 : 1);
      },
      ::testing::ExitedWithCode(7), "");
}

TEST(WorkerThreads, AreAQuarterOfTheRanksShareWithinOneToFour) {
  const auto threadsFor = [](int cpus, int ranks, int asked) {
    Settings settings;
    settings.threads = asked;
    settings.localRanks = ranks;
    return workerThreads(settings, cpus);
  };
  EXPECT_EQ(threadsFor(1, 1, 0), 1);
  EXPECT_EQ(threadsFor(8, 1, 0), 2);
  EXPECT_EQ(threadsFor(128, 1, 0), 4);
  EXPECT_EQ(threadsFor(128, 8, 0), 4);
  EXPECT_EQ(threadsFor(64, 8, 0), 2);
  EXPECT_EQ(threadsFor(4, 8, 0), 1);
  EXPECT_EQ(threadsFor(4, 0, 0), 1);
  EXPECT_EQ(threadsFor(4, 8, 7), 7);
}

TEST(WorkerThreads, SpinOnlyWhereARanksBusyThreadsHaveACpuEach) {
  const auto spinFor = [](int cpus, int ranks) {
    Settings settings;
    settings.localRanks = ranks;
    return workerSpin(settings, cpus).count();
  };
  EXPECT_EQ(spinFor(2, 1), 0);
  EXPECT_EQ(spinFor(3, 1), 0);
  EXPECT_EQ(spinFor(4, 1), 50);
  EXPECT_EQ(spinFor(64, 8), 50);
  EXPECT_EQ(spinFor(64, 32), 0);
}

std::vector<int> range(int first, int last) {
  std::vector<int> cpus;
  for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
  return cpus;
}

struct Placed {
  std::vector<int> allowed;
  std::vector<int> near;
  int localRanks;
  std::vector<int> kept;  // empty: stays where it is
  const char* why;
};
class CpusToKeepTo : public ::testing::TestWithParam<Placed> {};

// A rank of two to four workers and one progress thread, with NCCL's and the application's, keeps five to seven busy.
TEST_P(CpusToKeepTo, AreNearAllowedAndEnough) {
  Settings settings;
  settings.nearCpus = GetParam().near;
  settings.localRanks = GetParam().localRanks;
  EXPECT_EQ(cpusToKeepTo(settings, GetParam().allowed), GetParam().kept) << GetParam().why;
}

INSTANTIATE_TEST_SUITE_P(
    Hosts, CpusToKeepTo,
    ::testing::Values(
        Placed{range(0, 31), range(0, 15), 1, range(0, 15), "one of two nodes"},
        Placed{range(0, 31), range(0, 15), 4, {}, "four ranks keep more than sixteen CPUs busy"},
        Placed{range(8, 31), range(0, 15), 1, range(8, 15), "only what the process was given"},
        Placed{range(12, 31), range(0, 15), 1, {}, "four near CPUs are too few"},
        Placed{range(16, 31), range(0, 15), 1, {}, "given the other node"},
        Placed{range(0, 3), range(0, 15), 8, {}, "bound by its launcher to four near CPUs"},
        Placed{range(14, 17), range(0, 15), 8, {}, "bound across the nodes"},
        Placed{range(0, 15), range(0, 15), 1, {}, "all are near"},
        Placed{range(0, 31), {}, 1, {}, "nothing known of the NIC"},
        Placed{{}, range(0, 15), 1, {}, "the kernel does not tell what is allowed"},
        Placed{range(0, 255), {7, 64, 65, 66, 67, 68, 69, 300}, 1, {7, 64, 65, 66, 67, 68, 69}, "seven that count"},
        Placed{range(0, 255), {64, 65, 66, 67, 68, 69, 300}, 1, {}, "CPU 300 does not count"}));

}  // namespace
}  // namespace cgx
