// The plugin's own logic for net calls on a communicator, over a transport in memory where faults come on demand.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <set>

#include "test/plugin/net_logic_fixture.h"

namespace cgx::test {
namespace {

TEST_F(NetLogic, AFullPoolIsARequestToAskAgainAndNeverAnError) {
  connect();
  std::vector<void*> sends;
  for (void* request = send(1); request != nullptr; request = send(1)) sends.push_back(request);
  EXPECT_GE(sends.size(), 8U * NCCL_NET_MAX_REQUESTS);
  EXPECT_EQ(send(1), nullptr);
  void* first = post(1);
  ASSERT_NE(first, nullptr);
  EXPECT_TRUE(net_->wait(first));
  EXPECT_TRUE(net_->wait(sends[0]));
  sends[0] = send(1);
  EXPECT_NE(sends[0], nullptr);

  std::vector<void*> receives;
  for (void* request = post(1, 99); request != nullptr; request = post(1, 99)) receives.push_back(request);
  EXPECT_GE(receives.size(), std::size_t{NCCL_NET_MAX_REQUESTS});
  disconnect();
}

TEST_F(NetLogic, ARequestThatWasReportedDoneIsRefusedAfterwards) {
  connect();
  void* sent = send(8);
  EXPECT_TRUE(net_->wait(post(8)));
  EXPECT_TRUE(net_->wait(sent));
  int done = 0;
  EXPECT_EQ(net_->table->test(sent, &done, nullptr), ncclInvalidArgument);
  void* next = send(8);
  EXPECT_NE(next, sent) << "the same slot must have another name";
  EXPECT_EQ(net_->table->test(sent, &done, nullptr), ncclInvalidArgument);
  EXPECT_EQ(net_->table->test(nullptr, &done, nullptr), ncclInvalidArgument);
  EXPECT_EQ(net_->table->test(reinterpret_cast<void*>(1), &done, nullptr), ncclInvalidArgument);
  EXPECT_TRUE(net_->wait(post(8)));
  EXPECT_TRUE(net_->wait(next));
  disconnect();
}

TEST_F(NetLogic, AnErrorIsStickyAndHasOneWarningThatNamesOperationAndPeer) {
  connect();
  void* waiting = post(8);
  control_->cut = true;
  void* request = nullptr;
  EXPECT_EQ(net_->isend(send_, buffer_, 8, 0, &request), ncclSuccess) << "the fault comes with the request";
  int done = 0;
  for (int i = 0; i < 1000; ++i) {
    EXPECT_EQ(net_->table->test(waiting, &done, nullptr), ncclRemoteError);
    void* none = reinterpret_cast<void*>(1);
    EXPECT_EQ(net_->irecv(recv_, {{buffer_, 8}}, {0}, &none), ncclRemoteError);
    EXPECT_EQ(none, nullptr);
  }
  const auto warnings = Captured::take(NCCL_LOG_WARN);
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_EQ(warnings[0], "NET/CGX : test: peer memory:1: connection reset");
  disconnect();
}

TEST_F(NetLogic, AMessageLongerThanItsBufferIsInvalidUsageWithBothSizes) {
  connect();
  void* receive = post(10);
  send(1000);
  int done = 0;
  EXPECT_EQ(net_->table->test(receive, &done, nullptr), ncclInvalidUsage);
  const auto warnings = Captured::take(NCCL_LOG_WARN);
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_NE(warnings[0].find("1000"), std::string::npos);
  EXPECT_NE(warnings[0].find("buffer of 10"), std::string::npos);
  disconnect();
}

TEST_F(NetLogic, ALatePeerIsNamedOnceAnIntervalWithSizesAndWaitedFor) {
  setenv("CGX_LATE_WARN", "0.2", 1);
  connect();
  void* receives[] = {post(100, 1), post(200, 2), post(300, 3)};
  const auto start = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - start < std::chrono::milliseconds(350)) {
    int done = 0;
    for (void* receive : receives) ASSERT_EQ(net_->table->test(receive, &done, nullptr), ncclSuccess);
  }
  const auto warnings = Captured::take(NCCL_LOG_WARN);
  ASSERT_GE(warnings.size(), 1U);
  EXPECT_LE(warnings.size(), (std::chrono::steady_clock::now() - start) / std::chrono::milliseconds(200));
  for (const char* word : {"memory:1", "3 receive(s)", "100 bytes", "200 bytes", "300 bytes"})
    EXPECT_NE(warnings[0].find(word), std::string::npos) << warnings[0];
  send(7, 3);
  int size = 0;
  EXPECT_TRUE(net_->wait(receives[2], &size));
  EXPECT_EQ(size, 7);
  disconnect();
}

TEST_F(NetLogic, ManyLateConnectionsDoNotFloodTheLog) {
  setenv("CGX_LATE_WARN", "0.1", 1);
  ASSERT_EQ(net_->init(), ncclSuccess);
  std::vector<std::array<void*, 3>> comms(40);
  for (auto& [sendComm, recvComm, request] : comms) {
    ASSERT_TRUE(net_->pair(&sendComm, &recvComm));
    ASSERT_EQ(net_->irecv(recvComm, {{buffer_, 1}}, {0}, &request), ncclSuccess);
  }
  Captured::clear();
  std::this_thread::sleep_for(std::chrono::milliseconds(150));
  int done = 0;
  for (auto& comm : comms) ASSERT_EQ(net_->table->test(comm[2], &done, nullptr), ncclSuccess);
  EXPECT_EQ(Captured::take(NCCL_LOG_WARN).size(), 8U);
  for (auto& comm : comms) {
    net_->table->closeSend(comm[0]);
    net_->table->closeRecv(comm[1]);
  }
  EXPECT_EQ(net_->finalize(), ncclSuccess);
}

TEST_F(NetLogic, ALatePeerIsGivenUpAfterTheUsersLimit) {
  setenv("CGX_OP_TIMEOUT", "0.2", 1);
  connect();
  void* receive = post(100);
  EXPECT_FALSE(net_->wait(receive));
  const auto warnings = Captured::take(NCCL_LOG_WARN);
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_NE(warnings[0].find("CGX_OP_TIMEOUT"), std::string::npos);
  int done = 0;
  EXPECT_EQ(net_->table->test(receive, &done, nullptr), ncclRemoteError);
  disconnect();
}

TEST_F(NetLogic, TheProcessAbortsWithOneLineIfTheUserAskedForIt) {
  setenv("CGX_ABORT_ON_ERROR", "1", 1);
  connect();
  void* waiting = post(8);
  control_->cut = true;
  send(8);
  int done = 0;
  EXPECT_EXIT(net_->table->test(waiting, &done, nullptr), ::testing::KilledBySignal(SIGABRT),
              "^NET/CGX : aborting, as CGX_ABORT_ON_ERROR asks: peer memory:1: connection reset\n$");
  disconnect();
}

TEST_F(NetLogic, OneListenerServesManyConnectsAtOnce) {
  ASSERT_EQ(net_->init(), ncclSuccess);
  Net::Handle handle{};
  void* listener = nullptr;
  ASSERT_EQ(net_->listen(0, handle.data(), &listener), ncclSuccess);
  std::vector<void*> sends(16);
  std::vector<void*> recvs;
  while (recvs.size() < sends.size()) {
    for (void*& comm : sends) {
      if (comm != nullptr) continue;
      ASSERT_EQ(net_->connect(0, handle.data(), &comm), ncclSuccess);
    }
    void* comm = nullptr;
    ASSERT_EQ(net_->accept(listener, &comm), ncclSuccess);
    if (comm != nullptr) recvs.push_back(comm);
  }
  EXPECT_EQ(std::set<void*>(sends.begin(), sends.end()).size(), sends.size());
  EXPECT_EQ(std::set<void*>(recvs.begin(), recvs.end()).size(), recvs.size());
  EXPECT_EQ(net_->table->closeListen(listener), ncclSuccess);
  for (void* comm : sends) EXPECT_EQ(net_->table->closeSend(comm), ncclSuccess);
  for (void* comm : recvs) EXPECT_EQ(net_->table->closeRecv(comm), ncclSuccess);
  EXPECT_EQ(net_->finalize(), ncclSuccess);
}

TEST_F(NetLogic, MemoryOfAnyShapeRegistersAndOtherKindsAreRefused) {
  connect();
  void* handle = nullptr;
  EXPECT_EQ(net_->regMr(send_, nullptr, 0, NCCL_PTR_HOST, &handle), ncclSuccess);
  EXPECT_NE(handle, nullptr) << "NCCL deregisters only handles that are not NULL";
  EXPECT_EQ(net_->table->deregMr(send_, handle), ncclSuccess);
  EXPECT_EQ(net_->regMr(recv_, reinterpret_cast<void*>(64), std::size_t{1} << 36, NCCL_PTR_HOST, &handle), ncclSuccess);
  EXPECT_EQ(net_->table->deregMr(recv_, handle), ncclSuccess);
  EXPECT_EQ(net_->table->deregMr(recv_, nullptr), ncclSuccess);
  for (const int type : {NCCL_PTR_CUDA, NCCL_PTR_DMABUF, 0x80, 0})
    EXPECT_EQ(net_->regMr(send_, buffer_, 8, type, &handle), ncclInvalidArgument);
  EXPECT_EQ(net_->table->regMrDmaBuf(send_, buffer_, 8, NCCL_PTR_CUDA, ~0ULL, -1, &handle), ncclInternalError);
  EXPECT_EQ(net_->regMr(send_, buffer_, 8, NCCL_PTR_HOST, &handle), ncclSuccess);
  void* request = reinterpret_cast<void*>(1);
  EXPECT_EQ(net_->table->iflush(recv_, 0, nullptr, nullptr, nullptr, &request), ncclSuccess);
  EXPECT_EQ(request, nullptr);
  disconnect();
}

// NCCL frees its buffers between deregMr and close, at an abort with requests in flight.
TEST_F(NetLogic, DeregisteringMemoryUnderARequestFailsTheCommunicator) {
  connect();
  void* handle = nullptr;
  ASSERT_EQ(net_->regMr(recv_, buffer_, sizeof buffer_, NCCL_PTR_HOST, &handle), ncclSuccess);
  void* waiting = post(8);
  EXPECT_EQ(net_->table->deregMr(recv_, handle), ncclSuccess);
  int done = 0;
  EXPECT_EQ(net_->table->test(waiting, &done, nullptr), ncclInvalidUsage);
  void* request = nullptr;
  EXPECT_EQ(net_->irecv(recv_, {{buffer_, 8}}, {0}, &request), ncclInvalidUsage);
  EXPECT_EQ(net_->isend(send_, buffer_, 8, 0, &request), ncclRemoteError);
  EXPECT_EQ(net_->table->deregMr(recv_, handle), ncclInvalidArgument) << "it is gone";
  disconnect();
}

TEST_F(NetLogic, DeregisteringOtherMemoryDisturbsNothing) {
  connect();
  std::array<void*, 4> handles{};
  ASSERT_EQ(net_->regMr(send_, buffer_, 1000, NCCL_PTR_HOST, &handles[0]), ncclSuccess);
  ASSERT_EQ(net_->regMr(send_, buffer_, sizeof buffer_, NCCL_PTR_HOST, &handles[1]), ncclSuccess);
  ASSERT_EQ(net_->regMr(send_, buffer_ + 64, 64, NCCL_PTR_HOST, &handles[2]), ncclSuccess);
  ASSERT_EQ(net_->regMr(recv_, buffer_, 1000, NCCL_PTR_HOST, &handles[3]), ncclSuccess);
  void* sent = send(64);
  EXPECT_EQ(net_->table->deregMr(send_, handles[2]), ncclSuccess) << "beside the request's";
  EXPECT_EQ(net_->table->deregMr(send_, handles[0]), ncclSuccess) << "another registration covers the request";
  EXPECT_TRUE(net_->wait(post(64)));
  EXPECT_TRUE(net_->wait(sent));
  EXPECT_EQ(net_->table->deregMr(send_, handles[1]), ncclSuccess) << "the request is done";
  EXPECT_EQ(net_->table->deregMr(recv_, handles[3]), ncclSuccess);
  sent = send(8);
  EXPECT_TRUE(net_->wait(post(8)));
  EXPECT_TRUE(net_->wait(sent));
  disconnect();
}

TEST_F(NetLogic, WrongArgumentsAreErrorsAndLeaveTheCommunicatorUsable) {
  connect();
  void* request = nullptr;
  EXPECT_EQ(net_->isend(recv_, buffer_, 8, 0, &request), ncclInvalidArgument);
  EXPECT_EQ(net_->irecv(send_, {{buffer_, 8}}, {0}, &request), ncclInvalidArgument);
  EXPECT_EQ(net_->isend(nullptr, buffer_, 8, 0, &request), ncclInvalidArgument);
  EXPECT_EQ(net_->isend(send_, nullptr, 8, 0, &request), ncclInvalidArgument);
  EXPECT_EQ(net_->isend(send_, buffer_, NCCL_MAX_NET_SIZE_BYTES + 1, 0, &request), ncclInvalidArgument);
  EXPECT_EQ(net_->isend(send_, buffer_, 8, 0, nullptr), ncclInvalidArgument);
  EXPECT_EQ(
      net_->irecv(recv_, std::vector<std::pair<void*, std::size_t>>(9, {buffer_, 8}), std::vector<int>(9), &request),
      ncclInvalidArgument);
  EXPECT_EQ(net_->irecv(recv_, {}, {}, &request), ncclInvalidArgument);
  EXPECT_EQ(net_->table->closeSend(recv_), ncclInvalidArgument);
  EXPECT_EQ(net_->table->closeSend(nullptr), ncclSuccess);
  EXPECT_EQ(net_->table->closeListen(nullptr), ncclSuccess);
  void* comm = nullptr;
  Net::Handle zero{};
  EXPECT_EQ(net_->connect(0, zero.data(), &comm), ncclInvalidUsage);
  void* sent = send(8);
  EXPECT_TRUE(net_->wait(post(8)));
  EXPECT_TRUE(net_->wait(sent));
  disconnect();
}

}  // namespace
}  // namespace cgx::test
