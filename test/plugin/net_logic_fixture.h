// The library over a transport in memory, where faults come on demand, with one connected pair. Called through v12.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>

#include "test/plugin/memory_control.h"
#include "test/plugin/net_driver.h"

namespace cgx::test {

using Net = NetDriver<ncclNet_v12_t>;

class NetLogic : public ::testing::Test {
 protected:
  void SetUp() override { load(); }
  void TearDown() override {
    library_.reset();  // last, so that every object is closed by then
    for (const char* name : {"CGX_LATE_WARN", "CGX_OP_TIMEOUT", "CGX_ABORT_ON_ERROR", "CGX_BITS", "NCCL_NET_PLUGIN",
                             "NCCL_COLLNET_ENABLE"})
      unsetenv(name);
  }
  void load() {
    Captured::clear();
    library_ = std::make_unique<Library>(CGX_MEMORY_LIBRARY);
    net_ = std::make_unique<Net>(*library_);
    control_ = library_->symbol<CgxMemoryControl*()>("cgxMemoryControl")();
    *control_ = {};
  }
  void connect() {
    ASSERT_EQ(net_->init(), ncclSuccess);
    ASSERT_TRUE(net_->pair(&send_, &recv_));
    Captured::clear();
  }
  void disconnect() {
    EXPECT_EQ(net_->table->closeSend(send_), ncclSuccess);
    EXPECT_EQ(net_->table->closeRecv(recv_), ncclSuccess);
    EXPECT_EQ(net_->finalize(), ncclSuccess);
  }
  void* post(std::size_t bytes, int tag = 0) {
    void* request = nullptr;
    EXPECT_EQ(net_->irecv(recv_, {{buffer_, bytes}}, {tag}, &request), ncclSuccess);
    return request;
  }
  void* send(std::size_t bytes, int tag = 0) {
    void* request = nullptr;
    EXPECT_EQ(net_->isend(send_, buffer_, bytes, tag, &request), ncclSuccess);
    return request;
  }

  std::unique_ptr<Library> library_;
  std::unique_ptr<Net> net_;
  CgxMemoryControl* control_ = nullptr;
  void* send_ = nullptr;
  void* recv_ = nullptr;
  char buffer_[4096] = {};
};

}  // namespace cgx::test
