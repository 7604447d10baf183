// One all-reduce on buffers of the test's own making, registered as a user's: for values that the stand-in's fills do
// not have.
#pragma once

#include <cstring>
#include <string>
#include <thread>

#include "system/plugin_under_test.h"

namespace cgx::host {

class PlainReduce {
 public:
  PlainReduce(CollComm& comm, ncclDataType_t dtype, std::size_t count)
      : comm_(comm),
        dtype_(dtype),
        count_(count),
        send_(&comm.rank().board(), comm.rank().rank(), count * bytesOf(dtype)),
        recv_(&comm.rank().board(), comm.rank().rank(), count * bytesOf(dtype)) {}

  std::byte* send() { return send_.data(); }
  std::byte* recv() { return recv_.data(); }

  /// Registers, posts on the progress thread, waits, and hands the result's hash to the comparison
  /// of ranks. False: it failed, and has been reported.
  bool run(const std::string& key) {
    void* sendHandle = comm_.registerUser(send_.span());
    void* recvHandle = comm_.registerUser(recv_.span());
    ncclResult_t result = ncclSuccess;
    int done = 0;
    comm_.progress().run([&] { result = drive(sendHandle, recvHandle, &done); });
    comm_.deregisterUser(sendHandle);
    comm_.deregisterUser(recvHandle);
    if (result != ncclSuccess || done == 0) {
      comm_.rank().report(Violation::CallFails,
                          key + ": all-reduce ended with " + std::to_string(result) + (done == 0 ? ", not done" : ""));
      return false;
    }
    comm_.rank().hash(key, XXH3_128bits(recv_.data(), recv_.size()));
    return true;
  }

 private:
  ncclResult_t drive(void* sendHandle, void* recvHandle, int* done) {
    void* request = nullptr;
    const auto deadline =
        Clock::now() + std::chrono::duration_cast<Clock::duration>(Seconds(comm_.rank().limits().operationSeconds));
    while (*done == 0 && Clock::now() < deadline) {
      int size = 0;
      const ncclResult_t result = request ? comm_.abi().test(request, done, &size)
                                          : comm_.abi().iallreduce(comm_.comm(), send_.data(), recv_.data(), count_,
                                                                   dtype_, ncclSum, sendHandle, recvHandle, &request);
      if (result != ncclSuccess) return result;
      std::this_thread::yield();
    }
    return ncclSuccess;
  }

  CollComm& comm_;
  ncclDataType_t dtype_;
  std::size_t count_;
  GuardedBuffer send_;
  GuardedBuffer recv_;
};

/// A number as fp16 holds it.
inline std::vector<std::byte> sent(float value) {
  std::vector<std::byte> bytes(2);
  store(ncclFloat16, bytes.data(), 0, value);
  return bytes;
}

}  // namespace cgx::host
