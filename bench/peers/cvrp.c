// CVRP by hand: specs/routing.md 5.3 (step), 6 (mask), 7 (ends), as plain C over a batch of rows.
// One row is touched at a time, the loop over its nodes has no branch, and gcc -O3 vectorises it.
#include <math.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    int64_t rows, nodes, tour_size, max_steps;
    // instance
    const float *locs;       // (rows, nodes, 2)
    const int32_t *demand;   // (rows, nodes)
    const int32_t *capacity; // (rows)
    // state
    int64_t *current_node, *i;
    int32_t *load, *trips, *tour_len;
    float *tour_length, *trip_length;
    uint8_t *visited;        // (rows, nodes)
    int16_t *tour;           // (rows, tour_size)
    // outcome
    float *reward;
    uint8_t *terminated, *truncated, *illegal;
    uint8_t *action_mask;    // (rows, nodes)
} World;

static inline double distance(const float *locs, int64_t a, int64_t b) {
    double dx = (double)locs[2 * a] - locs[2 * b], dy = (double)locs[2 * a + 1] - locs[2 * b + 1];
    return sqrt(dx * dx + dy * dy);
}

static inline void mark_allowed(uint8_t *restrict mask, const uint8_t *restrict visited,
                                const int32_t *restrict demand, int64_t nodes, int32_t room) {
    for (int64_t j = 0; j < nodes; j++)
        mask[j] = (visited[j] == 0) & (demand[j] <= room);
}

static inline void close_row(uint8_t *mask, int64_t nodes) {
    memset(mask, 0, nodes);
    mask[0] = 1;
}

void step(const World *w, const int64_t *actions) {
    const int64_t nodes = w->nodes;
    for (int64_t b = 0; b < w->rows; b++) {
        const float *locs = w->locs + b * nodes * 2;
        const int32_t *demand = w->demand + b * nodes;
        uint8_t *visited = w->visited + b * nodes, *mask = w->action_mask + b * nodes;
        const int64_t a = actions[b];

        w->reward[b] = 0;
        w->illegal[b] = 0;
        if (w->terminated[b] | w->truncated[b])
            continue;

        w->i[b]++;
        if ((uint64_t)a >= (uint64_t)nodes || !mask[a]) {
            w->illegal[b] = 1;
        } else {
            const double leg = distance(locs, w->current_node[b], a);
            w->reward[b] = (float)-leg;
            w->tour_length[b] = (float)(w->tour_length[b] + leg);
            w->current_node[b] = a;
            w->tour[b * w->tour_size + w->tour_len[b]++] = (int16_t)a;
            if (a == 0) {
                w->load[b] = 0;
                w->trip_length[b] = 0;
                w->trips[b]++;
                // Every recorded action is a customer served or a trip ended.
                w->terminated[b] = w->tour_len[b] - w->trips[b] == nodes - 1;
            } else {
                w->load[b] += demand[a];
                w->trip_length[b] = (float)(w->trip_length[b] + leg);
                visited[a] = 1;
            }
            mark_allowed(mask, visited, demand, nodes, w->capacity[b] - w->load[b]);
            mask[0] = a != 0;
        }
        w->truncated[b] = !w->terminated[b] && w->i[b] >= w->max_steps;
        if (w->terminated[b] | w->truncated[b])
            close_row(mask, nodes);
    }
}

void reset(const World *w) {
    const int64_t nodes = w->nodes;
    for (int64_t b = 0; b < w->rows; b++) {
        w->current_node[b] = w->i[b] = 0;
        w->load[b] = w->trips[b] = w->tour_len[b] = 0;
        w->tour_length[b] = w->trip_length[b] = w->reward[b] = 0;
        w->terminated[b] = w->truncated[b] = w->illegal[b] = 0;
        memset(w->visited + b * nodes, 0, nodes);
        mark_allowed(w->action_mask + b * nodes, w->visited + b * nodes, w->demand + b * nodes, nodes, w->capacity[b]);
        w->action_mask[b * nodes] = 0;
    }
}
