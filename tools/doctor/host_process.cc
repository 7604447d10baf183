#include "doctor/host_process.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <thread>
#include <utility>

#include "doctor/lines.h"

namespace cgx::tool::doctor {
namespace {

constexpr std::size_t kMostReceived = 64u << 20;
constexpr std::size_t kMostSaid = 4096;
constexpr auto kPause = std::chrono::milliseconds(5);
constexpr int kPatience = 200;  // pauses, until a program that has closed its output has ended

void closeAll(std::initializer_list<int> fds) {
  for (const int fd : fds)
    if (fd >= 0) ::close(fd);
}

/// All that can be read now is appended; false at the end.
bool drain(int fd, std::string* out) {
  char some[4096];
  for (;;) {
    const ssize_t got = ::read(fd, some, sizeof some);
    if (got > 0) {
      out->append(some, static_cast<std::size_t>(got));
      continue;
    }
    if (got < 0 && errno == EINTR) continue;
    return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
  }
}

/// The last line that is not empty.
std::string lastLine(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' ')) text.pop_back();
  const std::size_t start = text.rfind('\n');
  return start == std::string::npos ? text : text.substr(start + 1);
}

std::string endText(int status) {
  if (WIFSIGNALED(status)) return "was killed by signal " + std::to_string(WTERMSIG(status));
  const int code = WEXITSTATUS(status);
  return "ended with status " + std::to_string(code) + (code == 127 ? " (command not found)" : "");
}

}  // namespace

HostProcess::HostProcess(const std::string& line) {
  int lines[2] = {-1, -1};
  int errors[2] = {-1, -1};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, lines) != 0 || ::pipe2(errors, O_CLOEXEC) != 0) {
    why_ = std::string("cannot be started: ") + std::strerror(errno);
    closeAll({lines[0], lines[1], errors[0], errors[1]});
    return;
  }
  pid_ = ::fork();
  if (pid_ == 0) {  // only async-signal-safe calls
    (void)::setpgid(0, 0);
    if (::dup2(lines[1], STDIN_FILENO) < 0 || ::dup2(lines[1], STDOUT_FILENO) < 0 ||
        ::dup2(errors[1], STDERR_FILENO) < 0)
      ::_exit(126);
    ::execl("/bin/sh", "sh", "-c", line.c_str(), static_cast<char*>(nullptr));
    ::_exit(127);
  }
  closeAll({lines[1], errors[1]});
  lines_ = lines[0];
  errors_ = errors[0];
  if (pid_ < 0) why_ = std::string("cannot be started: ") + std::strerror(errno);
  (void)::setpgid(pid_, pid_);  // whoever comes first
  (void)::fcntl(lines_, F_SETFL, O_NONBLOCK);
  (void)::fcntl(errors_, F_SETFL, O_NONBLOCK);
}

HostProcess::HostProcess(HostProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      lines_(std::exchange(other.lines_, -1)),
      errors_(std::exchange(other.errors_, -1)),
      received_(std::move(other.received_)),
      said_(std::move(other.said_)),
      why_(std::move(other.why_)) {}

HostProcess::~HostProcess() {
  if (pid_ > 0) {
    (void)::kill(-pid_, SIGKILL);
    (void)::waitpid(pid_, nullptr, 0);
  }
  closeAll({lines_, errors_});
}

void HostProcess::pump() {
  if (!alive()) return;
  (void)drain(errors_, &said_);
  if (said_.size() > kMostSaid) said_.erase(0, said_.size() - kMostSaid);
  const bool open = drain(lines_, &received_);
  if (received_.size() > kMostReceived) return giveUp("says too much");
  if (open) return;
  // Its end of the lines is closed, so it ends, or has.
  const int status = reap();
  (void)drain(errors_, &said_);
  end(endText(status));
}

int HostProcess::reap() {
  int status = 0;
  for (int i = 0; i < kPatience; ++i) {
    if (::waitpid(pid_, &status, WNOHANG) == pid_) {
      (void)::kill(-pid_, SIGKILL);  // what it may have left behind
      pid_ = -1;
      return status;
    }
    std::this_thread::sleep_for(kPause);
  }
  (void)::kill(-pid_, SIGKILL);
  (void)::waitpid(std::exchange(pid_, -1), &status, 0);
  return status;
}

std::optional<std::string> HostProcess::take() { return takeMarkedLine(&received_); }

void HostProcess::send(const std::string& text) {
  const std::string line = markedLine(text);
  // What does not fit into the buffer waits a moment for the program to read; it does nothing else meanwhile.
  (void)::fcntl(lines_, F_SETFL, 0);
  const timeval limit{10, 0};
  (void)::setsockopt(lines_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  std::size_t done = 0;
  while (done < line.size()) {
    const ssize_t sent = ::send(lines_, line.data() + done, line.size() - done, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) break;
    done += static_cast<std::size_t>(sent);
  }
  (void)::fcntl(lines_, F_SETFL, O_NONBLOCK);
  if (done < line.size()) giveUp("does not read");
}

void HostProcess::giveUp(const std::string& why) {
  if (!alive()) return;
  (void)drain(errors_, &said_);
  if (pid_ > 0) {
    (void)::kill(-pid_, SIGKILL);
    (void)::waitpid(std::exchange(pid_, -1), nullptr, 0);
  }
  end(why);
}

void HostProcess::end(const std::string& why) {
  const std::string words = lastLine(said_);
  why_ = why + (words.empty() ? "" : ": " + words);
}

}  // namespace cgx::tool::doctor
