// What ranks of `cgx doctor` tell each other, as JSON: first who they are and how they are set up, then what they
// found. Pure; what comes from others is input.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cgx/status.h"
#include "cgx/transport.h"
#include "doctor/checks.h"

namespace cgx::tool::doctor {

/// A listener on one device, for others to try.
struct Door {
  std::string device;
  transport::Handle handle{};
};

struct Card {
  std::string version;                           // of the tool
  std::string host;                              // name
  std::string identity;                          // of machine and network
  std::string library;                           // path; empty: none
  std::string build;                             // hash of the library
  std::string nccl;                              // version; empty: none found
  std::map<std::string, std::string> settings;   // CGX_*, in force
  std::map<std::string, std::string> variables;  // of NCCL, those that are set
  std::uint64_t staging = 0;                     // CGX_STAGING and CGX_BLOCK_ELEMENTS as numbers
  std::uint64_t blockElements = 0;
  int maxRanks = 0;
  int worldRanks = 0;  // the job's size by the launcher; 0: not known
  int devices = 0;     // of the plugin
  std::vector<Door> doors;
};
Card cardOf(const Facts& facts, const Lookup& lookup);

/// A door that did not open.
struct Unreached {
  int rank = 0;  // whose door
  std::string device;
  std::string why;
};
struct Findings {
  std::vector<Check> checks;
  std::vector<Unreached> unreached;
};

std::string encode(const Card& card);
std::string encode(const Findings& findings);
/// An error for text that this version does not understand.
Status decode(const std::string& text, Card* out);
Status decode(const std::string& text, Findings* out);

}  // namespace cgx::tool::doctor
