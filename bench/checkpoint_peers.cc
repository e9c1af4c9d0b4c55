#include "bench/checkpoint_peers.h"

#include "bench/python_peer.h"

namespace stoker::bench {

std::vector<Peer> checkpoint_peers(const std::vector<std::string>& libraries, Until until,
                                   size_t bytes, const std::shared_ptr<ScratchFolder>& folder,
                                   const std::function<double(double)>& of_seconds) {
  std::vector<Peer> peers;
  const auto python = maybe_named_python();
  if (!python) return peers;
  for (const std::string& library : libraries) {
    const auto peer = maybe_python_peer(
        "checkpoint, " + library, *python, "checkpoint_peer.py",
        {library, until == Until::kDurable ? "durable" : "blocked", std::to_string(bytes)});
    if (!peer) continue;
    const std::string name = library + (until == Until::kDurable ? " and fsync" : "");
    const std::string path = folder->file("peer-" + library);
    peers.push_back({name, [=]() -> Result<double> {
                       STOKER_ASSIGN_OR_RETURN(const double seconds, peer->ask(path));
                       return of_seconds(seconds);
                     }});
  }
  return peers;
}

}  // namespace stoker::bench
