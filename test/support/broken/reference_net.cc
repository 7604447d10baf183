// The net half of the reference plugin: one TCP connection a comm, moved forward by the calls themselves.
#include <dlfcn.h>
#include <pthread.h>

#include <array>
#include <deque>

#include "broken/reference.h"
#include "plugin/net_api.h"

namespace cgx::broken {

void leakSomething() {
  static bool leaked = false;
  if (leaked) return;
  leaked = true;
  if (is(Defect::LeaksThreads)) {
    pthread_t thread;
    // The thread sleeps in libc for ever, so it never returns into code that dlclose has unmapped.
    pthread_create(
        &thread, nullptr,
        [](void*) -> void* {
          pause();
          return nullptr;
        },
        nullptr);
  }
  if (is(Defect::LeaksFds)) (void)open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (is(Defect::LeaksMappings)) {
    Dl_info self{};
    dladdr(reinterpret_cast<void*>(&leakSomething), &self);
    dlopen(self.dli_fname, RTLD_NOW | RTLD_NODELETE);
  }
}

namespace {

constexpr int kMaxReceives = 32;
constexpr int kMaxSends = kMaxReceives * 8;

struct Frame {
  std::uint64_t size = 0;
  std::int32_t tag = 0;
  std::uint32_t unused = 0;
};

struct Comm;

struct Slot {
  std::byte* data = nullptr;
  std::size_t room = 0;
  std::size_t size = 0;
  int tag = 0;
  bool taken = false;
  bool full = false;
};

struct Request {
  Comm* comm = nullptr;
  bool isSend = false;
  int n = 1;
  std::array<Slot, 8> slots;
  std::size_t headerDone = 0;
  std::size_t dataDone = 0;
};

struct Comm {
  int fd = -1;
  bool lost = false;
  bool forgotten = false;         // for a defect
  std::deque<Request*> sends;     // not yet written
  std::deque<Request*> receives;  // not yet filled
  int outstanding = 0;
  int completed = 0;
  Frame frame;  // being received
  std::size_t frameDone = 0;
  Slot* target = nullptr;
  std::size_t targetDone = 0;
  std::byte* lastBuffer = nullptr;  // for a defect
};

/// A lost connection stays lost, unless forgetting that is the defect.
ncclResult_t failure(Comm& comm) {
  if (is(Defect::ErrorNotSticky) && comm.forgotten) return ncclSuccess;
  comm.forgotten = true;
  return ncclRemoteError;
}

void progressSends(Comm& comm) {
  while (!comm.lost && !comm.sends.empty()) {
    Request& r = *comm.sends.front();
    Slot& s = r.slots[0];
    const Frame frame{s.size, s.tag, 0};
    Io io = sendSome(comm.fd, &frame, sizeof frame, &r.headerDone);
    if (io == Io::Moved) io = sendSome(comm.fd, s.data, s.size, &r.dataDone);
    if (io == Io::Lost) comm.lost = true;
    if (io != Io::Moved) return;
    if (is(Defect::WritesUserSendBuffer) && s.size > 16) s.data[3] ^= std::byte{1};
    s.full = true;
    comm.sends.pop_front();
  }
}

Slot* match(Comm& comm, int tag) {
  const auto in = [&](Request* r) -> Slot* {
    for (int i = 0; i < r->n; ++i) {
      Slot& s = r->slots[static_cast<std::size_t>(i)];
      if (!s.taken && s.tag == tag) return &s;
    }
    return nullptr;
  };
  if (is(Defect::ReordersReceives)) {
    for (auto r = comm.receives.rbegin(); r != comm.receives.rend(); ++r)
      if (Slot* s = in(*r)) return s;
    return nullptr;
  }
  for (Request* r : comm.receives)
    if (Slot* s = in(r)) return s;
  return nullptr;
}

void finishReceive(Comm& comm, Slot& s) {
  ++comm.completed;
  if (is(Defect::CorruptsData) && s.size > 100 && comm.completed % 5 == 0) s.data[s.size / 2] ^= std::byte{0x10};
  if (is(Defect::WritesOutsideBuffer) && s.size > 0 && s.size < s.room) s.data[s.size] = std::byte{0};
  s.full = !is(Defect::NeverCompletes) || comm.completed < 6;
  comm.lastBuffer = s.data;
  comm.target = nullptr;
  comm.frameDone = comm.targetDone = 0;
  while (!comm.receives.empty()) {
    const Request& first = *comm.receives.front();
    for (int i = 0; i < first.n; ++i)
      if (!first.slots[static_cast<std::size_t>(i)].taken) return;
    comm.receives.pop_front();
  }
}

void progressReceives(Comm& comm) {
  while (!comm.lost && !comm.receives.empty()) {
    Io io = recvSome(comm.fd, &comm.frame, sizeof comm.frame, &comm.frameDone);
    if (io == Io::Moved && !comm.target) {
      comm.target = match(comm, comm.frame.tag);
      if (!comm.target) return;  // its receive is not posted yet
      if (comm.frame.size > comm.target->room) {
        comm.lost = true;
        return;
      }
      comm.target->taken = true;
      comm.target->size = comm.frame.size;
    }
    if (io == Io::Moved) io = recvSome(comm.fd, comm.target->data, comm.target->size, &comm.targetDone);
    if (io == Io::Lost) comm.lost = true;
    if (io != Io::Moved) return;
    finishReceive(comm, *comm.target);
  }
}

ncclResult_t devices(int* count) {
  *count = 1;
  return ncclSuccess;
}

template <class Props>
ncclResult_t getProperties(int dev, Props* out) {
  return fillProps(dev, out);
}

ncclResult_t init(ncclDebugLogger_t) {
  leakSomething();
  return ncclSuccess;
}
ncclResult_t init(ncclDebugLogger_t log, ncclProfilerCallback_t) { return init(log); }
ncclResult_t init(void** ctx, std::uint64_t, ncclNetCommConfig_t*, ncclDebugLogger_t log, ncclProfilerCallback_t) {
  *ctx = ctx;
  return init(log);
}

ncclResult_t listen(int, void* handle, void** listenComm) { return listenOnLoopback(handle, listenComm); }
ncclResult_t listen(void*, int, void* handle, void** listenComm) { return listenOnLoopback(handle, listenComm); }

ncclResult_t connectAny(void* handle, void** sendComm) {
  const int fd = dial(handle);
  if (fd < 0) return ncclRemoteError;
  if (is(Defect::BlocksInConnect)) {
    char hello;
    while (recv(fd, &hello, 1, 0) != 1)
      usleep(10'000);  // accept sends it; the end of a peer that was killed is no answer
  }
  setNonBlocking(fd);
  auto* comm = new Comm;
  comm->fd = fd;
  *sendComm = comm;
  return ncclSuccess;
}
ncclResult_t connect(int, void* handle, void** sendComm) { return connectAny(handle, sendComm); }
ncclResult_t connect(int, void* handle, void** sendComm, ncclNetDeviceHandle_t**) {
  return connectAny(handle, sendComm);
}
ncclResult_t connect(int, ncclNetCommConfig_t*, void* handle, void** sendComm, ncclNetDeviceHandle_t**) {
  return connectAny(handle, sendComm);
}
ncclResult_t connect(void*, int, void* handle, void** sendComm, ncclNetDeviceHandle_t**) {
  return connectAny(handle, sendComm);
}

ncclResult_t accept(void* listenComm, void** recvComm) {
  const int fd = accept4(static_cast<Listener*>(listenComm)->fd, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  *recvComm = nullptr;
  if (fd < 0) return ncclSuccess;
  if (is(Defect::BlocksInConnect)) (void)send(fd, "!", 1, MSG_NOSIGNAL);
  auto* comm = new Comm;
  comm->fd = fd;
  *recvComm = comm;
  return ncclSuccess;
}
ncclResult_t accept(void* listenComm, void** recvComm, ncclNetDeviceHandle_t**) { return accept(listenComm, recvComm); }

template <class Size>
ncclResult_t regMr(void* comm, void*, Size, int, void** mhandle) {
  *mhandle = comm;
  return ncclSuccess;
}
ncclResult_t regMrDmaBuf(void*, void*, std::size_t, int, std::uint64_t, int, void**) { return ncclInternalError; }
ncclResult_t deregMr(void*, void*) { return ncclSuccess; }

ncclResult_t isendAny(void* opaque, void* data, std::size_t size, int tag, void** request) {
  auto* comm = static_cast<Comm*>(opaque);
  *request = nullptr;
  if (comm->lost) return failure(*comm);
  if (comm->outstanding == kMaxSends) return ncclSuccess;
  auto* r = new Request;
  r->comm = comm;
  r->isSend = true;
  r->slots[0] = {static_cast<std::byte*>(data), size, size, tag, false, false};
  ++comm->outstanding;
  comm->sends.push_back(r);
  progressSends(*comm);
  *request = r;
  return ncclSuccess;
}
template <class Size>
ncclResult_t isend(void* comm, void* data, Size size, int tag, void*, void** request) {
  return isendAny(comm, data, static_cast<std::size_t>(size), tag, request);
}
ncclResult_t isend(void* comm, void* data, std::size_t size, int tag, void*, void*, void** request) {
  return isendAny(comm, data, size, tag, request);
}

template <class Size>
ncclResult_t irecv(void* opaque, int n, void** data, Size* sizes, int* tags, void**, void** request) {
  auto* comm = static_cast<Comm*>(opaque);
  *request = nullptr;
  if (comm->lost) return failure(*comm);
  if (comm->outstanding == kMaxReceives) return ncclSuccess;
  auto* r = new Request;
  r->comm = comm;
  r->n = n;
  for (int i = 0; i < n; ++i)
    r->slots[static_cast<std::size_t>(i)] = {
        static_cast<std::byte*>(data[i]), static_cast<std::size_t>(sizes[i]), 0, tags[i], false, false};
  ++comm->outstanding;
  comm->receives.push_back(r);
  *request = r;
  return ncclSuccess;
}
ncclResult_t irecv(void* comm, int n, void** data, std::size_t* sizes, int* tags, void** mhandles, void**,
                   void** request) {
  return irecv(comm, n, data, sizes, tags, mhandles, request);
}

ncclResult_t iflush(void*, int, void**, int*, void**, void** request) {
  *request = nullptr;
  return ncclSuccess;
}

ncclResult_t test(void* opaque, int* done, int* sizes) {
  auto* r = static_cast<Request*>(opaque);
  sleepIfBlocking();
  *done = 0;
  if (r->isSend) {
    progressSends(*r->comm);
  } else {
    progressReceives(*r->comm);
  }
  bool full = true;
  for (int i = 0; i < r->n; ++i) full = full && r->slots[static_cast<std::size_t>(i)].full;
  if (!full) {
    return r->comm->lost ? failure(*r->comm) : ncclSuccess;
  }
  for (int i = 0; sizes && i < r->n; ++i)
    sizes[i] = static_cast<int>(r->slots[static_cast<std::size_t>(i)].size) +
               (is(Defect::WrongTestSize) && !r->isSend ? 1 : 0);
  *done = 1;
  --r->comm->outstanding;
  delete r;
  return ncclSuccess;
}

ncclResult_t closeSend(void* opaque) {
  auto* comm = static_cast<Comm*>(opaque);
  sleepIfCloseBlocks();
  close(comm->fd);
  for (Request* r : comm->sends) delete r;
  delete comm;
  return ncclSuccess;
}
ncclResult_t closeRecv(void* opaque) {
  auto* comm = static_cast<Comm*>(opaque);
  close(comm->fd);
  if (is(Defect::TouchesStagingAfterDereg) && !comm->receives.empty())
    comm->receives.front()->slots[0].data[0] = std::byte{1};
  for (Request* r : comm->receives) delete r;
  delete comm;
  return ncclSuccess;
}
ncclResult_t closeListen(void* listenComm) {
  auto* listener = static_cast<Listener*>(listenComm);
  close(listener->fd);
  delete listener;
  return ncclSuccess;
}
ncclResult_t getDeviceMr(void*, void*, void**) { return ncclInternalError; }
ncclResult_t irecvConsumed(void*, int, void*) { return ncclSuccess; }
ncclResult_t finalize(void*) { return ncclSuccess; }
ncclResult_t setNetAttr(void*, ncclNetAttr_t*) { return ncclSuccess; }

template <class Net>
Net makeNet() {
  Net net{};
  net.name = "reference";
  net.init = init;
  net.devices = devices;
  net.getProperties = getProperties;
  net.listen = listen;
  net.connect = connect;
  net.accept = accept;
  net.regMr = regMr;
  net.regMrDmaBuf = regMrDmaBuf;
  net.deregMr = deregMr;
  net.isend = isend;
  net.irecv = irecv;
  net.iflush = iflush;
  net.test = test;
  net.closeSend = closeSend;
  if (!is(Defect::MissingFunction)) net.closeRecv = closeRecv;
  net.closeListen = closeListen;
  if constexpr (requires { net.getDeviceMr; }) net.getDeviceMr = getDeviceMr;
  if constexpr (requires { net.irecvConsumed; }) net.irecvConsumed = irecvConsumed;
  if constexpr (requires { net.finalize; }) net.finalize = finalize;
  if constexpr (requires { net.setNetAttr; }) net.setNetAttr = setNetAttr;
  return net;
}

}  // namespace
}  // namespace cgx::broken

using cgx::broken::makeNet;
extern "C" CGX_REFERENCE_EXPORT const ncclNet_v6_t ncclNetPlugin_v6 = makeNet<ncclNet_v6_t>();
extern "C" CGX_REFERENCE_EXPORT const ncclNet_v7_t ncclNetPlugin_v7 = makeNet<ncclNet_v7_t>();
extern "C" CGX_REFERENCE_EXPORT const ncclNet_v8_t ncclNetPlugin_v8 = makeNet<ncclNet_v8_t>();
extern "C" CGX_REFERENCE_EXPORT const ncclNet_v9_t ncclNetPlugin_v9 = makeNet<ncclNet_v9_t>();
extern "C" CGX_REFERENCE_EXPORT const ncclNet_v10_t ncclNetPlugin_v10 = makeNet<ncclNet_v10_t>();
extern "C" CGX_REFERENCE_EXPORT const ncclNet_v11_t ncclNetPlugin_v11 = makeNet<ncclNet_v11_t>();
extern "C" CGX_REFERENCE_EXPORT const ncclNet_v12_t ncclNetPlugin_v12 = makeNet<ncclNet_v12_t>();
