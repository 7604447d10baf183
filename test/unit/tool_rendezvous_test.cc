// The ranks' meeting point, with threads for ranks: everyone comes, somebody does not, somebody is wrong, strangers
// knock.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <thread>

#include "tools/rendezvous.h"

namespace cgx::tool {
namespace {

using Met = Result<std::unique_ptr<Rendezvous>>;

struct Spot {
  int port = 0;
  int fd = -1;
  Spot() {
    Result<int> listener = listenAt("127.0.0.1", &port);
    EXPECT_TRUE(listener.ok());
    fd = listener.ok() ? listener.value() : -1;
  }
  Meeting meeting(int rank, int ranks, double timeoutSeconds = 10) const {
    return {rank, ranks, "127.0.0.1", port, rank == 0 ? fd : -1, "same", timeoutSeconds};
  }
};

void onThreads(int ranks, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(body, rank);
  for (std::thread& thread : threads) thread.join();
}

int dialed(int port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  return fd;
}

TEST(ToolRendezvous, GivesEverybodyEverybodysPartManyTimesOver) {
  const Spot spot;
  onThreads(5, [&](int rank) {
    Met met = meet(spot.meeting(rank, 5));
    ASSERT_TRUE(met.ok()) << met.status().text();
    for (int round = 0; round < 50; ++round) {
      Result<std::vector<std::string>> all =
          met.value()->allGather(std::string(static_cast<std::size_t>(rank), 'x') + std::to_string(round));
      ASSERT_TRUE(all.ok()) << all.status().text();
      for (int r = 0; r < 5; ++r)
        ASSERT_EQ(all.value()[static_cast<std::size_t>(r)],
                  std::string(static_cast<std::size_t>(r), 'x') + std::to_string(round));
    }
  });
}

TEST(ToolRendezvous, DropsStrangersAndGoesOn) {
  const Spot spot;
  const int silent = dialed(spot.port);
  const int noisy = dialed(spot.port);
  (void)!::write(noisy, "GET / HTTP/1.1\r\n\r\n", 18);
  const int gone = dialed(spot.port);
  ::close(gone);
  onThreads(2, [&](int rank) {
    const Met met = meet(spot.meeting(rank, 2));
    EXPECT_TRUE(met.ok()) << met.status().text();
  });
  ::close(silent);
  ::close(noisy);
}

TEST(ToolRendezvous, NamesTheRanksThatDidNotCome) {
  const Spot spot;
  onThreads(2, [&](int rank) {
    const Met met = meet(spot.meeting(rank, 4, 0.5));
    ASSERT_FALSE(met.ok());
    EXPECT_NE(met.status().text().find("rank 2, 3 did not come"), std::string::npos) << met.status().text();
  });
}

TEST(ToolRendezvous, NamesADifferentRankCountOnBothSides) {
  const Spot spot;
  onThreads(2, [&](int rank) {
    const Met met = meet(spot.meeting(rank, rank == 0 ? 2 : 3));
    ASSERT_FALSE(met.ok());
    EXPECT_NE(met.status().text().find("rank 1 was started for 3 ranks, rank 0 for 2"), std::string::npos)
        << met.status().text();
  });
}

TEST(ToolRendezvous, NamesADifferentTaskOnBothSides) {
  const Spot spot;
  onThreads(2, [&](int rank) {
    Meeting meeting = spot.meeting(rank, 2);
    if (rank == 1) meeting.agreement = "other";
    const Met met = meet(meeting);
    ASSERT_FALSE(met.ok());
    EXPECT_NE(met.status().text().find("\"other\", rank 0 with \"same\""), std::string::npos) << met.status().text();
  });
}

TEST(ToolRendezvous, NamesAPortThatIsTaken) {
  const Spot spot;
  Meeting meeting = spot.meeting(0, 2);
  meeting.listenFd = -1;
  const Met met = meet(meeting);
  ASSERT_FALSE(met.ok());
  EXPECT_NE(met.status().text().find("port " + std::to_string(spot.port)), std::string::npos) << met.status().text();
  ::close(spot.fd);
}

TEST(ToolRendezvous, NamesARankThatVanishes) {
  const Spot spot;
  onThreads(3, [&](int rank) {
    Met met = meet(spot.meeting(rank, 3));
    ASSERT_TRUE(met.ok());
    if (rank == 2) return;  // closes its connection without a word
    Result<std::vector<std::string>> all = met.value()->allGather("x");
    ASSERT_FALSE(all.ok());
    if (rank == 0) {
      EXPECT_NE(all.status().text().find("rank 2 has gone"), std::string::npos) << all.status().text();
    }
    const std::optional<Status> text = met.value()->giveUp(all.status());
    if (rank == 0) {
      EXPECT_NE(text->text().find("rank 2 has gone"), std::string::npos);
    }
    if (rank == 1) {
      EXPECT_FALSE(text.has_value());
    }  // rank 0 says it
  });
}

TEST(ToolRendezvous, TellsOneRanksErrorOnceWithItsRank) {
  const Spot spot;
  onThreads(3, [&](int rank) {
    Met met = meet(spot.meeting(rank, 3));
    ASSERT_TRUE(met.ok());
    const Status why = rank == 1 ? Status::invalid("no luck") : met.value()->allGather("x").status();
    ASSERT_FALSE(why.ok());
    const std::optional<Status> text = met.value()->giveUp(why);
    if (rank == 0) {
      EXPECT_EQ(text->text(), "rank 1: no luck");
    }
    if (rank != 0) {
      EXPECT_FALSE(text.has_value());
    }
  });
}

TEST(ToolRendezvous, WaitsForARootThatStartsLater) {
  const Spot spot;
  ::close(spot.fd);
  onThreads(2, [&](int rank) {
    Meeting meeting = spot.meeting(rank, 2);
    meeting.listenFd = -1;
    if (rank == 0) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    const Met met = meet(meeting);
    EXPECT_TRUE(met.ok()) << met.status().text();
  });
}

}  // namespace
}  // namespace cgx::tool
