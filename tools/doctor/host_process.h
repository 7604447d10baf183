// A command that runs on a host, and the lines that go to and fro. Used by hosts.cc only.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

namespace cgx::tool::doctor {

class HostProcess {
 public:
  /// Runs `line` in a shell, with a process group of its own.
  explicit HostProcess(const std::string& line);
  HostProcess(HostProcess&& other) noexcept;
  HostProcess& operator=(HostProcess&&) = delete;
  ~HostProcess();  // kills the group if it still runs

  int linesFd() const { return lines_; }
  int errorsFd() const { return errors_; }
  bool alive() const { return why_.empty(); }
  /// Takes in what has come. False once it has ended.
  void pump();
  std::optional<std::string> take();
  void send(const std::string& text);
  /// Ends it; `why` is what whyNot() says unless it said something itself.
  void giveUp(const std::string& why);
  /// Why it is no longer alive, with its last words.
  const std::string& whyNot() const { return why_; }

 private:
  int reap();  // its exit status as waitpid tells it
  void end(const std::string& why);

  pid_t pid_ = -1;
  int lines_ = -1;
  int errors_ = -1;
  std::string received_;
  std::string said_;  // its standard error
  std::string why_;
};

}  // namespace cgx::tool::doctor
