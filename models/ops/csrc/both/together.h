// Compile operations in processes of their own; see ops/together.py. In the meantime they throw.
#pragma once
#include <stdexcept>
#include <unistd.h>
#include <op.h>
#include <fused_op.h>

namespace jittor {
extern jit_op_entry_t (*do_compile_hook)(Op *);
jit_op_entry_t do_compile_inner(Op *);
}

namespace neus {

struct Pipes {
    int tokens[2], processes;  // a token for each process that may work; where their numbers are written
};
static Pipes pipes;

static void not_compiled(jittor::Op *) { throw std::runtime_error("compiled elsewhere"); }

static jittor::jit_op_entry_t compile_elsewhere(jittor::Op *op) {
    const int process = fork();
    if (process == 0) {
        char token;
        const bool may_work = read(pipes.tokens[0], &token, 1) == 1;
        try {
            if (may_work) jittor::do_compile_inner(op);
        } catch (...) {  // this process compiles it again, and reports that
        }
        _exit(write(pipes.tokens[1], &token, 1) != 1);
    }
    if (process < 0 || write(pipes.processes, &process, sizeof process) != sizeof process)
        throw std::runtime_error("no process can be started");
    return not_compiled;
}

template <typename Map, typename IsMissing>
inline void forget(Map &map, IsMissing is_missing) {
    for (auto entry = map.umap.begin(); entry != map.umap.end();)
        entry = is_missing(*entry) ? map.umap.erase(entry) : std::next(entry);
}

inline void together(const Together &layout, long, const int *, int *) {
    pipes = {{layout.take, layout.give}, layout.processes};
    jittor::do_compile_hook = layout.begins ? compile_elsewhere : nullptr;
    if (layout.begins) return;
    forget(jittor::jit_ops, [](auto &entry) { return entry.second == not_compiled; });
    forget(jittor::jit_fused_ops, [](auto &entry) { return entry.second->entry == not_compiled; });
    forget(jittor::jit_key_mapper, [](auto &entry) {
        return jittor::jit_ops.find(entry.first) == jittor::jit_ops.end() &&
               jittor::jit_fused_ops.find(entry.first) == jittor::jit_fused_ops.end();
    });
}

}  // namespace neus
