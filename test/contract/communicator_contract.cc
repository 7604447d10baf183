// Whole communicators over sockets, threads as ranks: connecting together or not at all, sums, errors, memory that goes
// away.
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <fstream>
#include <random>

#include "cgx/log.h"
#include "support/communicators.h"

namespace cgx::collective {
namespace {

using codec::DType;
using test::Communicators;
using test::loopback;
using test::onEveryRank;

std::vector<float> gradient(std::size_t rank, std::size_t count, std::uint64_t seed = 1) {
  std::mt19937_64 random(seed * 1000 + rank);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& v : values) v = normal(random);
  return values;
}

void expectSameSums(Communicators& comms, std::size_t count, std::uint64_t seed) {
  std::vector<std::vector<float>> sums(comms.size());
  onEveryRank(comms.size(), [&](std::size_t r) {
    const std::vector<float> send = gradient(r, count, seed);
    sums[r].resize(count);
    const Status s = test::allReduce(comms[r], send.data(), sums[r].data(), count, DType::F32);
    ASSERT_TRUE(s.ok()) << s.text();
  });
  double error = 0;
  double energy = 0;
  std::vector<double> exact(count);
  for (std::size_t r = 0; r < comms.size(); ++r) {
    const std::vector<float> values = gradient(r, count, seed);
    for (std::size_t i = 0; i < count; ++i) exact[i] += static_cast<double>(values[i]);
  }
  for (std::size_t i = 0; i < count; ++i) {
    energy += exact[i] * exact[i];
    error += (static_cast<double>(sums[0][i]) - exact[i]) * (static_cast<double>(sums[0][i]) - exact[i]);
  }
  EXPECT_LE(error, 0.05 * energy);
  for (std::size_t r = 1; r < comms.size(); ++r) ASSERT_EQ(sums[r], sums[0]) << "rank " << r;
}

TEST(Communicator, RanksOfAllNumbersGetTheSameSums) {
  for (const std::size_t ranks : {1, 2, 3, 4, 5, 8}) {
    Communicators comms(std::vector<Settings>(ranks, loopback()));
    ASSERT_TRUE(comms.allConnected()) << ranks;
    for (const std::size_t count : {1, 4099, 100000}) expectSameSums(comms, count, count);
  }
}

TEST(Communicator, ManyOperationsInFlightArriveInAnyTestingOrder) {
  Communicators comms(std::vector<Settings>(3, loopback()));
  ASSERT_TRUE(comms.allConnected());
  constexpr std::size_t kOperations = 200;
  std::vector<std::vector<std::vector<float>>> sums(3, std::vector<std::vector<float>>(kOperations));
  onEveryRank(3, [&](std::size_t r) {
    std::vector<std::vector<float>> sends;
    std::vector<Request*> requests;
    std::mt19937 random(static_cast<unsigned>(r));
    for (std::size_t k = 0; k < kOperations; ++k) {
      const std::size_t count = 1 + (k * 7919) % (k % 20 == 0 ? 90000 : 2000);
      sends.push_back(gradient(r, count, k));
      sums[r][k].resize(count);
    }
    std::size_t done = 0;
    for (std::size_t k = 0; done < kOperations;) {
      if (k < kOperations) {
        Request* request = nullptr;
        const Status s = comms[r].allReduce(sends[k].data(), sums[r][k].data(), sends[k].size(), DType::F32, &request);
        ASSERT_TRUE(s.ok()) << s.text();
        if (request != nullptr) {
          requests.push_back(request);
          ++k;
          continue;
        }
      }
      std::shuffle(requests.begin(), requests.end(), random);
      std::size_t bytes = 0;
      const Status s = test::finish(comms[r], requests.back(), &bytes);
      ASSERT_TRUE(s.ok()) << s.text();
      requests.pop_back();
      ++done;
    }
  });
  EXPECT_EQ(sums[1], sums[0]);
  EXPECT_EQ(sums[2], sums[0]);
}

TEST(Communicator, AProblemOnOneRankFailsConnectOnAllAndNamesIt) {
  std::vector<Settings> settings(3, loopback());
  Communicators comms(settings, [](std::size_t r, ConnectSpec& spec, auto&) {
    if (r == 2) spec.problem = Status::invalid("CGX_BITS=9 is not 1..8 or 32");
  });
  for (std::size_t r = 0; r < 3; ++r) {
    EXPECT_FALSE(comms.connected(r));
    EXPECT_NE(comms.error(r).text().find("rank 2: CGX_BITS=9"), std::string::npos) << comms.error(r).text();
  }
}

TEST(Communicator, SettingsThatShapeThePlanMustAgree) {
  std::vector<Settings> settings(3, loopback());
  settings[1].onePhaseBytes = 1;
  Communicators comms(settings);
  for (std::size_t r = 0; r < 3; ++r) {
    EXPECT_FALSE(comms.connected(r));
    EXPECT_NE(comms.error(r).text().find("CGX_ONE_PHASE_BYTES differs: 1 on rank 1, 65536 on rank 0"),
              std::string::npos)
        << comms.error(r).text();
  }
}

// Each rank's tuner chooses by itself; ranks that choose differently would wait for each other for ever.
TEST(Communicator, SettingsThatTheTunerChoosesFromMustAgree) {
  const std::pair<std::function<void(Settings&)>, const char*> cases[] = {
      {[](Settings& s) { s.mode = Mode::Always; }, "CGX_MODE"},
      {[](Settings& s) { s.comms = Comms::All; }, "CGX_COMMS"},
      {[](Settings& s) { s.worldRanks = 3; }, "WORLD_SIZE"},
      {[](Settings& s) { s.bits = 8; }, "CGX_BITS"},
      {[](Settings& s) { s.minBytes = 1; }, "CGX_MIN_BYTES"},
  };
  for (const auto& [change, name] : cases) {
    std::vector<Settings> settings(3, loopback());
    change(settings[2]);
    Communicators comms(settings);
    for (std::size_t r = 0; r < 3; ++r) {
      EXPECT_FALSE(comms.connected(r)) << name;
      EXPECT_NE(comms.error(r).text().find(name), std::string::npos) << comms.error(r).text();
    }
  }
}

TEST(Communicator, TheJobsSizeMayDifferWhereAllCommunicatorsAreMeant) {
  std::vector<Settings> settings(2, loopback());
  for (Settings& s : settings) s.comms = Comms::All;
  settings[1].worldRanks = 3;
  EXPECT_TRUE(Communicators(settings).allConnected());
}

// What each rank decides for itself by its own word of the job; the widths are in the codes.
TEST(Communicator, RanksThatCompressNothingAddWithThoseThatDo) {
  Communicators comms(std::vector<Settings>(3, loopback()),
                      [](std::size_t rank, collective::ConnectSpec& spec, auto&) { spec.exact = rank == 1; });
  ASSERT_TRUE(comms.allConnected());
  expectSameSums(comms, 50000, 4);
}

TEST(Communicator, BitsMayDifferAndSumsAreStillTheSame) {
  std::vector<Settings> settings(3, loopback());
  for (Settings& s : settings) s.mode = Mode::Always;  // in auto the tuner's choice hangs on them
  settings[0].bits = 3;
  settings[1].bits = 8;
  Communicators comms(settings);
  ASSERT_TRUE(comms.allConnected());
  expectSameSums(comms, 50000, 3);
}

TEST(Communicator, ARankThatNeverConnectsFailsTheOthersInTime) {
  std::vector<Settings> settings(3, loopback());
  for (Settings& s : settings) s.connectTimeout = 1;
  for (const std::size_t absent : {std::size_t{1}, std::size_t{0}}) {
    const auto start = transport::Clock::now();
    Communicators comms(settings, {}, {absent});
    EXPECT_LT(transport::Clock::now() - start, std::chrono::seconds(8));
    for (std::size_t r = 0; r < 3; ++r) {
      EXPECT_FALSE(comms.connected(r));
      if (r != absent) {
        EXPECT_TRUE(comms.error(r).failed());
      }
    }
  }
}

// Rank 2 says yes, for the listeners answer before their ranks call connect, and has given up when rank 1 comes.
TEST(Communicator, ARankThatGaveUpAfterItsYesFailsTheOthers) {
  std::vector<Settings> settings(3, loopback());
  settings[2].connectTimeout = 0.2;  // and the grace for the verdict
  Communicators comms(settings, [](std::size_t r, ConnectSpec&, std::vector<transport::Handle>&) {
    if (r == 1) std::this_thread::sleep_for(std::chrono::milliseconds(6500));
  });
  for (std::size_t r = 0; r < 3; ++r) EXPECT_FALSE(comms.connected(r)) << r;
  EXPECT_NE(comms.error(1).text().find("rank 2 is gone"), std::string::npos) << comms.error(1).text();
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they map more than any limit
TEST(Communicator, RanksWithoutMemoryForStagingFailAll) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_AS, &before), 0);
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  std::vector<Settings> settings(4, loopback());
  for (Settings& s : settings) s.blockElements = std::size_t{1} << 22;
  // Enough for one rank.
  rlimit tight = before;
  tight.rlim_cur = pages * static_cast<std::size_t>(::getpagesize()) + stagingBytes(settings[0], 4) * 3 / 2;
  ASSERT_EQ(::setrlimit(RLIMIT_AS, &tight), 0);
  Communicators comms(settings);
  ASSERT_EQ(::setrlimit(RLIMIT_AS, &before), 0);
  for (std::size_t r = 0; r < 4; ++r) {
    EXPECT_FALSE(comms.connected(r)) << r;
    EXPECT_NE(comms.error(r).text().find("CGX_STAGING"), std::string::npos) << comms.error(r).text();
  }
}
#endif

TEST(Communicator, ACorruptHandleOnOneRankFailsAll) {
  std::vector<Settings> settings(3, loopback());
  for (Settings& s : settings) s.connectTimeout = 2;
  Communicators comms(settings, [](std::size_t r, ConnectSpec&, std::vector<transport::Handle>& handles) {
    if (r == 2) handles[1] = {};
  });
  for (std::size_t r = 0; r < 3; ++r) {
    EXPECT_FALSE(comms.connected(r));
    EXPECT_NE(comms.error(r).text().find("rank 2 cannot reach rank 1"), std::string::npos) << comms.error(r).text();
  }
}

TEST(Communicator, MoreRanksThanAllowedAreRefusedEverywhere) {
  std::vector<Settings> settings(3, loopback());
  for (Settings& s : settings) s.maxRanks = 2;
  Communicators comms(settings);
  for (std::size_t r = 0; r < 3; ++r) {
    EXPECT_FALSE(comms.connected(r));
    EXPECT_NE(comms.error(r).text().find("CGX_MAX_RANKS"), std::string::npos) << comms.error(r).text();
  }
}

TEST(Communicator, APeerThatClosesIsAnErrorForTheOthersAtOnceAndForEver) {
  Communicators comms(std::vector<Settings>(3, loopback()));
  ASSERT_TRUE(comms.allConnected());
  const std::vector<float> send(100000, 1.0f);
  std::vector<std::vector<float>> recv(3, std::vector<float>(send.size()));
  onEveryRank(3, [&](std::size_t r) {
    if (r == 2) return comms.close(2);
    Request* request = nullptr;
    Status s = test::postAllReduce(comms[r], send.data(), recv[r].data(), send.size(), DType::F32, &request);
    std::size_t bytes = 0;
    if (s.ok()) s = test::finish(comms[r], request, &bytes, 5);
    EXPECT_EQ(s.code(), Code::Remote) << s.text();
    for (int again = 0; again < 1000; ++again) {
      EXPECT_EQ(comms[r].allReduce(send.data(), recv[r].data(), send.size(), DType::F32, &request).code(),
                Code::Remote);
    }
  });
}

// NCCL's ranks do not meet before they destroy: who is done leaves, the others may be behind.
TEST(Communicator, ARankThatLeavesWhenItIsDoneCostsTheOthersNothing) {
  for (std::size_t round = 0; round < 40; ++round) {
    Communicators comms(std::vector<Settings>(3, loopback()));
    ASSERT_TRUE(comms.allConnected());
    const std::size_t count = std::array{1000, 20000, 300000}[round % 3];
    std::vector<std::vector<float>> sums(3, std::vector<float>(count));
    onEveryRank(3, [&](std::size_t r) {
      const std::vector<float> send = gradient(r, count, round);
      const Status s = test::allReduce(comms[r], send.data(), sums[r].data(), count, DType::F32);
      EXPECT_TRUE(s.ok()) << "rank " << r << ", round " << round << ": " << s.text();
      comms.close(r);
    });
    EXPECT_EQ(sums[1], sums[0]);
    EXPECT_EQ(sums[2], sums[0]);
  }
}

TEST(Communicator, ALatePeerIsNamedInOneLineHoweverManyOperationsWait) {
  std::vector<Settings> settings(2, loopback());
  for (Settings& s : settings) s.lateWarn = 0.2;
  Communicators comms(settings);
  ASSERT_TRUE(comms.allConnected());
  static std::atomic<int> lines;
  lines = 0;
  log::setSink([](log::Level, log::Subsys, const char*, int, const char*) noexcept { ++lines; }, log::Level::Warn);
  const std::vector<float> send(100, 1.0f);
  std::vector<std::vector<float>> recv(8, std::vector<float>(send.size()));
  std::vector<Request*> requests(recv.size());
  for (std::size_t k = 0; k < recv.size(); ++k)
    ASSERT_TRUE(test::postAllReduce(comms[0], send.data(), recv[k].data(), 100, DType::F32, &requests[k]).ok());
  const auto start = transport::Clock::now();
  std::size_t bytes = 0;
  while (transport::Clock::now() - start < std::chrono::milliseconds(350)) {
    for (Request* request : requests) EXPECT_TRUE(comms[0].test(request, &bytes).isPending());
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  log::setSink(nullptr, log::Level::None);
  EXPECT_GE(lines, 1);
  EXPECT_LT(lines, 8);  // one each would be eight
}

TEST(Communicator, DifferentCallsAreAnErrorThatNamesBoth) {
  Communicators comms(std::vector<Settings>(2, loopback()));
  ASSERT_TRUE(comms.allConnected());
  std::vector<Status> outcome(2);
  onEveryRank(2, [&](std::size_t r) {
    std::vector<float> memory(2000);
    Request* request = nullptr;
    outcome[r] = test::postAllReduce(comms[r], memory.data(), memory.data(), 1000 + r, DType::F32, &request);
    std::size_t bytes = 0;
    if (outcome[r].ok()) outcome[r] = test::finish(comms[r], request, &bytes, 5);
    comms[r].close();
  });
  for (const Status& s : outcome) {
    EXPECT_NE(s.text().find("of 1001 fp32 elements"), std::string::npos) << s.text();
    EXPECT_NE(s.text().find("of 1000 fp32 elements"), std::string::npos) << s.text();
  }
  EXPECT_TRUE(outcome[0].code() == Code::Invalid || outcome[1].code() == Code::Invalid);
}

// NCCL's staging: registered twice, cleared when seen and after use, unmapped right after the first deregistration,
// operations in flight.
TEST(Communicator, StagingMayBeUnmappedRightAfterTheFirstDeregistration) {
  constexpr std::size_t kHalf = 4 << 20;
  for (int round = 0; round < 5; ++round) {
    Communicators comms(std::vector<Settings>(2, loopback()));
    ASSERT_TRUE(comms.allConnected());
    onEveryRank(2, [&](std::size_t r) {
      auto* staging = static_cast<std::byte*>(
          ::mmap(nullptr, 2 * kHalf, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
      std::memset(staging, 0x33, 2 * kHalf);
      void* first = nullptr;
      void* second = nullptr;
      ASSERT_TRUE(comms[r].registerMemory(staging, 2 * kHalf, &first).ok());
      ASSERT_TRUE(comms[r].registerMemory(staging, 2 * kHalf, &second).ok());
      EXPECT_EQ(staging[0], std::byte{0});
      EXPECT_EQ(staging[2 * kHalf - 1], std::byte{0});
      Request* request = nullptr;
      for (int k = 0; k < 8; ++k) {
        // Rank 1 never posts the last ones, so rank 0's are in flight when it goes.
        if (r == 1 && k >= 4) break;
        std::byte* slot = staging + static_cast<std::size_t>(k % 8) * (kHalf / 8);
        std::memset(slot, k + 1, kHalf / 8);
        const Status s = comms[r].allReduce(slot, slot + kHalf, kHalf / 32, DType::F32, &request);
        if (!s.ok()) break;  // the other side has gone already
      }
      ASSERT_TRUE(comms[r].deregisterMemory(first).ok());
      ::munmap(staging, 2 * kHalf);
      EXPECT_EQ(comms[r].allReduce(staging, staging + kHalf, 10, DType::F32, &request).code(), Code::Invalid);
      ASSERT_TRUE(comms[r].deregisterMemory(second).ok());
      comms[r].close();
    });
  }
}

TEST(Communicator, ThirtyTwoAtOnceInOneProcess) {
  std::vector<std::unique_ptr<Communicators>> all;
  for (int k = 0; k < 32; ++k) {
    all.push_back(std::make_unique<Communicators>(std::vector<Settings>(2, loopback())));
    ASSERT_TRUE(all.back()->allConnected()) << k;
  }
  for (int k = 0; k < 32; ++k) expectSameSums(*all[static_cast<std::size_t>(k)], 20000, static_cast<std::uint64_t>(k));
}

TEST(Communicator, ABurstOfAThousandSmallTensors) {
  Communicators comms(std::vector<Settings>(4, loopback()));
  ASSERT_TRUE(comms.allConnected());
  onEveryRank(4, [&](std::size_t r) {
    constexpr std::size_t kTensors = 1000;
    std::vector<float> send(kTensors * 16, static_cast<float>(r + 1));
    std::vector<float> recv(send.size());
    std::vector<Request*> requests;
    std::size_t tested = 0;
    std::size_t bytes = 0;
    for (std::size_t k = 0; k < kTensors;) {
      Request* request = nullptr;
      ASSERT_TRUE(comms[r].allReduce(&send[k * 16], &recv[k * 16], 1 + k % 16, DType::F32, &request).ok());
      if (request != nullptr) {
        requests.push_back(request);
        ++k;
      } else {
        ASSERT_TRUE(test::finish(comms[r], requests[tested++], &bytes).ok());
      }
    }
    for (; tested < kTensors; ++tested) ASSERT_TRUE(test::finish(comms[r], requests[tested], &bytes).ok());
    for (std::size_t k = 0; k < kTensors; ++k) EXPECT_EQ(recv[k * 16], 10.0f);
  });
}

}  // namespace
}  // namespace cgx::collective
