#include "bench/torch_peers.h"

#include "bench/python_peer.h"

namespace stoker::bench {

Result<std::vector<Peer>> torch_peers(const TorchTraining& training, const Options& options) {
  std::vector<Peer> peers;
  const auto python = maybe_named_python();
  if (!python) return peers;
  for (const bool compiled : {false, true}) {
    if (compiled && options.quick) continue;
    const std::string name = compiled ? "torch.compile" : "eager PyTorch";
    const auto peer = maybe_python_peer(training.bench + ", " + name, *python, training.script,
                                        {compiled ? "compiled" : "eager", training.setup});
    if (!peer) continue;
    if (static_cast<int64_t>(peer->greeting()) != training.parameters)
      return Status(Code::kMismatch, name + " has " + std::to_string(peer->greeting()) +
                                         " parameters and buffers, ours " +
                                         std::to_string(training.parameters));
    peers.push_back({name,
                     [peer, seconds = std::to_string(options.seconds),
                      units = training.units]() -> Result<double> {
                       STOKER_ASSIGN_OR_RETURN(const double steps, peer->ask(seconds));
                       return steps * units;
                     }});
  }
  return peers;
}

}  // namespace stoker::bench
