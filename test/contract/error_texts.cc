// What users read when something goes wrong, word for word: test/golden/errors.txt, to be read from top to bottom by a
// person. Each says what, where and what to do; a change of one is a change of that file.
#include <netinet/in.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>

#include "collective/regions.h"
#include "statistics/file.h"
#include "support/communicators.h"
#include "support/engine_ranks.h"
#include "support/faulty_stream.h"
#include "transport/handshake.h"
#include "transport/socket/interfaces.h"

namespace cgx {
namespace {

using collective::ConnectSpec;
using test::Communicators;
using transport::Handle;

/// Without what changes from run to run.
std::string steady(std::string text) {
  text = std::regex_replace(text, std::regex("127\\.0\\.0\\.1:[0-9]+"), "127.0.0.1:PORT");
  text = std::regex_replace(text, std::regex("^rank [0-9] said: "), "");  // the links in memory say that
  return std::regex_replace(text, std::regex("\\.tmp\\.[0-9]+"), ".tmp.PID");
}

Status loadOf(const std::map<std::string, std::string>& variables) {
  Settings settings;
  return load(settings, [&](const char* name) -> const char* {
    const auto it = variables.find(name);
    return it == variables.end() ? nullptr : it->second.c_str();
  });
}

Status foreignHandle() {
  Handle foreign{};
  foreign[0] = std::byte{AF_INET};
  return transport::decodeHandle(foreign).status();
}

Status handleOfAnotherVersion() {
  Handle handle = transport::encodeHandle({});
  handle[offsetof(wire::Handle, version)] = std::byte{9};
  return transport::decodeHandle(handle).status();
}

constexpr transport::Nonce kNonce{1, 2, 3};

Status answerOfAnotherVersion() {
  transport::Wire back;
  transport::Wire out;
  transport::FaultyStream stream(back, out);
  transport::DialHandshake dial({kNonce, {}, transport::Role::Net, 0, 1, {}});
  const wire::Prefix reply{wire::kReplyMagic, 9, 32, 0};
  const auto bytes = std::as_bytes(std::span(&reply, 1));
  back.bytes.assign(bytes.begin(), bytes.end());
  return dial.progress(stream);
}

Status stranger() {
  transport::Wire in;
  transport::Wire out;
  transport::FaultyStream stream(in, out);
  for (const char c : std::string("GET / HTTP/1.1\r\nHost: x\r\n")) in.bytes.push_back(std::byte(c));
  transport::AcceptHandshake accept(kNonce, transport::Role::Net);
  return accept.progress(stream);
}

Status noInterface() {
  transport::socket::Interface down{"eth1", 2, false, false, {}};
  transport::socket::Interface other{"eth0", 3, true, false, {}};
  return transport::socket::chooseInterfaces({down, other}, "=eth1", "").status();
}

/// What rank 0 is told.
Status connectError(std::size_t ranks, const std::function<void(std::size_t rank, Settings&)>& set,
                    const Communicators::Alter& alter = {}) {
  std::vector<Settings> settings(ranks, test::loopback());
  for (std::size_t r = 0; r < ranks; ++r) set(r, settings[r]);
  return Communicators(settings, alter).error(0);
}

Status differentCalls() {
  test::EngineRanks engines(1, std::vector<Settings>(2));
  std::vector<test::Call> calls(2);
  std::vector<collective::Request*> requests(2);
  for (std::size_t r = 0; r < 2; ++r) {
    calls[r].shape.count = 1000 + r;
    calls[r].send.assign(2, std::vector<std::byte>(8000));
    calls[r].recv = calls[r].send;
    EXPECT_TRUE(engines.post(calls[r], r, &requests[r]).ok());
  }
  engines.world().run();
  std::size_t bytes = 0;
  return engines.engine(0).test(requests[0], &bytes);
}

std::string allTexts() {
  const auto nothing = [](std::size_t, Settings&) {};
  const char* const variables[] = {"CGX_BIT=4", nullptr};
  const std::pair<const char*, Status> errors[] = {
      {"a bad setting", loadOf({{"CGX_BITS", "9"}})},
      {"two bad settings", loadOf({{"CGX_BITS", "four"}, {"CGX_MIN_BYTES", "1 K"}})},
      {"an unknown setting", Status::invalid(unknownSettings(variables).at(0))},
      {"no network interface", noInterface()},
      {"a device that does not exist",
       transport::createSocket(test::loopback()).value()->listen(7, transport::Role::Net).status()},
      {"NCCL's handle was not filled", transport::decodeHandle(Handle{}).status()},
      {"another plugin's handle", foreignHandle()},
      {"a handle of another version", handleOfAnotherVersion()},
      {"a peer of another version", answerOfAnotherVersion()},
      {"a stranger dials", stranger()},
      {"settings that differ", connectError(2, [](std::size_t r, Settings& s) { s.onePhaseBytes = r + 1; })},
      {"a bad setting on another rank", connectError(2, nothing,
                                                     [](std::size_t r, ConnectSpec& spec, auto&) {
                                                       if (r == 1) spec.problem = loadOf({{"CGX_BITS", "9"}});
                                                     })},
      {"too many ranks", connectError(3, [](std::size_t, Settings& s) { s.maxRanks = 2; })},
      {"a handle damaged on another rank", connectError(
                                               2, [](std::size_t, Settings& s) { s.connectTimeout = 2; },
                                               [](std::size_t r, ConnectSpec&, std::vector<Handle>& handles) {
                                                 if (r == 1) handles[0] = {};
                                               })},
      {"ranks call different operations", differentCalls()},
      {"a statistics file without a folder", statistics::replaceFile("/nonexistent/a.json", "")},
      {"a SIMD target that is none", codec::select("mmx").status().within("CGX_SIMD")},
  };
  std::string out;
  for (const auto& [name, status] : errors) {
    EXPECT_TRUE(status.failed()) << name;
    out += std::string("## ") + name + "\n" + steady(status.text()) + "\n\n";
  }
  // Which ones there are depends on the CPU.
  return std::regex_replace(out, std::regex("there are: auto.*"), "there are: auto ...");
}

TEST(ErrorTexts, AreThoseThatWereReadThrough) {
  const std::string texts = allTexts();
  std::ifstream in(CGX_GOLDEN_DIR "/errors.txt");
  const std::string golden(std::istreambuf_iterator<char>(in), {});
  if (texts == golden) return;
  std::ofstream("errors.txt") << texts;
  FAIL() << "not " CGX_GOLDEN_DIR "/errors.txt; errors.txt in the folder of the test has these:\n" << texts;
}

}  // namespace
}  // namespace cgx
