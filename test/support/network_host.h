// Hosts made of network namespaces, and cables between them. Needs root and the ip command.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>

namespace cgx::test {

inline bool shell(const std::string& command) { return std::system((command + " >/dev/null 2>&1").c_str()) == 0; }

/// Empty: namespaces can be made here; else why not.
inline std::string whyNoNetworkHosts() {
  if (::geteuid() != 0) return "needs root, to make network namespaces";
  const std::string probe = "cgxprobe" + std::to_string(::getpid());
  if (!shell("ip netns add " + probe)) return "needs the ip command and the right to make network namespaces";
  shell("ip netns del " + probe);
  return {};
}

/// A network namespace with a name of its own, deleted at the end.
class Host {
 public:
  explicit Host(const std::string& letter) : name_("cgx" + std::to_string(::getpid()) + letter) {
    EXPECT_TRUE(shell("ip netns add " + name_));
    ip("link set lo up");
  }
  ~Host() { shell("ip netns del " + name_); }
  void ip(const std::string& arguments) const { EXPECT_TRUE(shell("ip -n " + name_ + " " + arguments)) << arguments; }
  void address(const std::string& device, const std::string& cidr) const {
    ip("addr add " + cidr + " dev " + device + (cidr.find(':') != std::string::npos ? " nodad" : ""));
    ip("link set " + device + " up");
  }
  /// As sysctl -w, which not every machine has: "net/ipv4/ip_forward", "1".
  void kernel(const std::string& file, const std::string& value) const {
    EXPECT_TRUE(shell("ip netns exec " + name_ + " sh -c 'echo " + value + " >/proc/sys/" + file + "'")) << file;
  }
  /// Runs `body` in a process in this namespace; its result is the exit status, its words go to standard error.
  pid_t start(const std::function<bool()>& body) const {
    const pid_t pid = ::fork();
    if (pid != 0) return pid;
    const int fd = ::open(("/run/netns/" + name_).c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0 || ::setns(fd, CLONE_NEWNET) != 0) ::_exit(3);
    ::_exit(body() ? 0 : 1);
  }
  static bool succeeded(pid_t pid) {
    int status = -1;
    return ::waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
  /// The kernel reports a new state of a link with up to a second's delay.
  void await(const std::string& device, const std::string& state) const {
    bool seen = false;
    for (const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
         !seen && std::chrono::steady_clock::now() < end;) {
      seen = shell("ip -n " + name_ + " -br link show " + device + " | grep -qw " + state);
      if (!seen) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    EXPECT_TRUE(seen) << device << " does not become " << state;
  }
  const std::string& name() const { return name_; }

 private:
  std::string name_;
};

inline void cable(const Host& a, const std::string& atA, const Host& b, const std::string& atB) {
  EXPECT_TRUE(
      shell("ip link add " + atA + " netns " + a.name() + " type veth peer name " + atB + " netns " + b.name()));
}

}  // namespace cgx::test
