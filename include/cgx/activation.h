// What NCCL must be told so that it uses us, and by whom it can still be told in time: one room that the env plugin,
// the net plugin's init and tools ask. Pure: facts in, decision out; sets nothing, reads nothing itself. Sources:
// NCCL 2.18 to 2.30 (src/plugin/net.cc, src/plugin/env.cc, src/init.cc), measured in the versions named.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cgx/nccl_version.h"
#include "cgx/settings.h"

namespace cgx::activation {

/// Who can switch CollNet on.
enum class Way : std::uint8_t {
  FromInit,   // up to 2.26: the plugin's init is in time
  ByHand,     // 2.27 to 2.28.3: read before any plugin is loaded; the user or nccl.conf
  EnvPlugin,  // from 2.28.7: libnccl-env.so, or what helps with ByHand
  Unknown,    // NCCL's version is not known
};
Way wayOf(NcclVersion nccl) noexcept;

/// 2.28.3 to 2.29.7 forget the plugin's name once the last communicator is gone, and the next ends on NCCL's own
/// sockets, unless NCCL_NET_PLUGIN_REF_COUNT=1. True for an unknown version too: there it does no harm.
bool forgetsThePlugin(NcclVersion nccl) noexcept;

/// Whether NCCL_NET_PLUGIN may be a path. Up to 2.20 it is libnccl-net-<value>.so and nothing else, and 2.27.3 opens as
/// it is only what begins with "lib" and ends in ".so". False for an unknown version: there "cgx" is understood by all.
bool takesAPath(NcclVersion nccl) noexcept;

/// The GPUs of a host, the same on each of its ranks.
struct Box {
  int gpus = 0;
  bool nvlink = false;  // between any of them
  bool p2p = false;     // some pair reads each other's memory over PCIe
  bool known = true;    // false: there are GPUs and no way to ask about the two above
};

struct Facts {
  NcclVersion nccl;
  Lookup lookup;            // the job's environment
  std::string libraryPath;  // of this library, to recognise its path in NCCL_NET_PLUGIN
  Intra intra = Intra::Auto;
  Gdr gdr = Gdr::Auto;
  bool devicePointers = false;  // whether this build takes CUDA pointers
  std::string host;             // identity of this host and boot
  std::function<Box()> box;     // asked only when the answer depends on it; empty: no GPU
};

/// A variable of NCCL's that should have a value.
struct Wanted {
  const char* name;
  std::string value;
  const char* why;
  std::optional<std::string> users;  // what the user has set, which wins

  const std::string& effective() const { return users ? *users : value; }
  bool asWanted() const { return effective() == value; }
};

struct Decision {
  bool named = false;  // NCCL_NET_PLUGIN or NCCL_TUNER_PLUGIN means us; if not, nothing is wanted
  Way way = Way::Unknown;
  std::vector<Wanted> wanted;
  std::vector<std::string> warnings;  // for the user, a sentence each; each once

  const Wanted* find(const std::string& name) const;
};

Decision decide(const Facts& facts);

/// Whether `name` is a variable that decide() may want; cheap.
bool mayDecide(const char* name) noexcept;

/// What the user has set, even if it is empty (NCCL_COLLNET_ENABLE= is a 0 to NCCL). An NCCL_HOSTID of ours that a
/// parent process set is not the user's.
std::optional<std::string> usersValue(const char* name, const Lookup& lookup);

/// Whether NCCL takes this value of NCCL_COLLNET_ENABLE for on: up to 2.26 the text "1", later a number above 0.
bool collnetOn(const std::string& value, NcclVersion nccl) noexcept;

/// Whether a value set by the plugin's init counts for the process's first communicator. Where it does not it must not
/// be set there at all: NCCL 2.27 and later read NCCL_COLLNET_ENABLE anew for each communicator, so the second would
/// have CollNet on the ranks for which it is the second, and not on the others.
bool inTimeFromInit(const char* name, NcclVersion nccl) noexcept;

/// What the user can do about CollNet being off. One clause, no full stop.
std::string remedy(NcclVersion nccl, const std::string& libraryPath);

/// Whether a value of NCCL_NET_PLUGIN or NCCL_TUNER_PLUGIN means the library in `libraryPath`: "cgx", its file name, a
/// path to that very file, or a comma list that holds one of these. nullptr: no.
bool namesUs(const char* value, const std::string& libraryPath);

/// Whether NCCL of that version finds us by a value that names us: up to 2.20 only "cgx" does, lists came with 2.27.
/// True for an unknown version.
bool understood(const char* value, const std::string& libraryPath, NcclVersion nccl);

/// Which of the host's processes of this job this is, by what the launcher says; nothing when it does not.
std::optional<int> localRank(const Lookup& lookup);

}  // namespace cgx::activation
