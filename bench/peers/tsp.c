// TSP by hand, start="depot": specs/routing.md 5.1 (step), 6 (mask), 7 (ends), as plain C over a batch of rows.
// A visit closes one node of the mask, so a step costs the same at any number of nodes.
#include <math.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    int64_t rows, nodes, tour_size, max_steps;
    // instance
    const float *locs;       // (rows, nodes, 2)
    const int32_t *demand;   // unused: one layout for both worlds
    const int32_t *capacity; // unused
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

void step(const World *w, const int64_t *actions) {
    const int64_t nodes = w->nodes;
    for (int64_t b = 0; b < w->rows; b++) {
        const float *locs = w->locs + b * nodes * 2;
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
            w->trip_length[b] = (float)(w->trip_length[b] + leg);
            w->current_node[b] = a;
            w->tour[b * w->tour_size + w->tour_len[b]++] = (int16_t)a;
            visited[a] = 1;
            mask[a] = 0;
            // All others are visited: home is open, and once there stays the only index that is.
            mask[0] = w->tour_len[b] >= nodes - 1;
            w->terminated[b] = a == 0;
            w->trips[b] += a == 0;
        }
        w->truncated[b] = !w->terminated[b] && w->i[b] >= w->max_steps;
        if (w->truncated[b]) {
            memset(mask, 0, nodes);
            mask[0] = 1;
        }
    }
}

void reset(const World *w) {
    const int64_t nodes = w->nodes;
    for (int64_t b = 0; b < w->rows; b++) {
        w->current_node[b] = w->i[b] = 0;
        w->trips[b] = w->tour_len[b] = 0;
        w->tour_length[b] = w->trip_length[b] = w->reward[b] = 0;
        w->terminated[b] = w->truncated[b] = w->illegal[b] = 0;
        memset(w->visited + b * nodes, 0, nodes);
        memset(w->action_mask + b * nodes, 1, nodes);
        w->visited[b * nodes] = 1;
        w->action_mask[b * nodes] = nodes == 1;
    }
}
