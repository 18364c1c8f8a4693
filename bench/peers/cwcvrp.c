// CWCVRP by hand, trips="multi": step, mask and overflows as plain C over a batch of rows.
// One row is touched at a time, the loops over its nodes have no branch, and gcc -O3 vectorises them.
#include <math.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    int64_t rows, nodes, tour_size, max_steps;
    double waste_weight, beta, overflow_price;
    // instance
    const float *locs;       // (rows, nodes, 2)
    const float *waste;      // (rows, nodes)
    const float *max_waste, *capacity;
    const uint8_t *must_go;  // (rows, nodes)
    // state
    int64_t *current_node, *i;
    int32_t *trips, *tour_len, *skipped, *missed, *overflows;
    float *load, *collected, *tour_length, *trip_length;
    uint8_t *visited;        // (rows, nodes)
    int16_t *tour;           // (rows, tour_size)
    // outcome
    double *objective;
    float *reward;
    uint8_t *terminated, *truncated, *illegal;
    uint8_t *action_mask;    // (rows, nodes)
} World;

static inline double distance(const float *locs, int64_t a, int64_t b) {
    double dx = (double)locs[2 * a] - locs[2 * b], dy = (double)locs[2 * a + 1] - locs[2 * b + 1];
    return sqrt(dx * dx + dy * dy);
}

static inline int mark(const World *w, int64_t b) {
    const int64_t nodes = w->nodes;
    const float *waste = w->waste + b * nodes;
    const uint8_t *visited = w->visited + b * nodes, *must = w->must_go + b * nodes;
    uint8_t *mask = w->action_mask + b * nodes;
    const double capacity = w->capacity[b];
    const double room = capacity + fmin(0.5, 1e-5 * fmax(1.0, capacity)) - w->load[b];
    float most = (float)room;
    if ((double)most > room)
        most = nextafterf(most, -INFINITY);
    uint8_t any = 0, waits = 0;
    for (int64_t j = 0; j < nodes; j++)
        mask[j] = (uint8_t)(!visited[j] & (waste[j] <= most));
    for (int64_t j = 1; j < nodes; j++) {
        any |= mask[j];
        waits |= mask[j] & must[j];
    }
    mask[0] = w->current_node[b] != 0 || !waits;
    return any;
}

void step(const World *w, const int64_t *actions) {
    const int64_t nodes = w->nodes;
    for (int64_t b = 0; b < w->rows; b++) {
        uint8_t *visited = w->visited + b * nodes, *mask = w->action_mask + b * nodes;
        const float *waste = w->waste + b * nodes;
        const int64_t a = actions[b], c = w->current_node[b];
        w->reward[b] = 0;
        w->illegal[b] = 0;
        if (w->terminated[b] | w->truncated[b])
            continue;
        w->i[b]++;
        if ((uint64_t)a >= (uint64_t)nodes || !mask[a]) {
            w->illegal[b] = 1;
        } else {
            const double leg = distance(w->locs + b * nodes * 2, c, a);
            double paid = -w->beta * leg;
            w->tour_length[b] = (float)(w->tour_length[b] + leg);
            w->trip_length[b] = (float)(w->trip_length[b] + leg);
            w->current_node[b] = a;
            w->tour[b * w->tour_size + w->tour_len[b]++] = (int16_t)a;
            int ends = 0;
            if (a != 0) {
                w->collected[b] = (float)((double)w->collected[b] + waste[a]);
                w->load[b] = (float)((double)w->load[b] + waste[a]);
                visited[a] = 1;
                w->skipped[b]--;
                w->missed[b] -= w->must_go[b * nodes + a];
                paid += w->waste_weight * waste[a];
                mark(w, b);
            } else if (c != 0) {
                w->load[b] = w->trip_length[b] = 0;
                w->trips[b]++;
                ends = !mark(w, b);
            } else {
                ends = 1;
            }
            if (ends) {
                const double full = (double)w->max_waste[b] * (1.0 - 1e-6);
                int32_t over = 0;
                for (int64_t j = 1; j < nodes; j++)
                    over += !visited[j] & (waste[j] >= full);
                w->overflows[b] = over;
                paid -= w->overflow_price * over;
                w->terminated[b] = 1;
            }
            w->reward[b] = (float)paid;
        }
        w->truncated[b] = !w->terminated[b] && w->i[b] >= w->max_steps;
        w->objective[b] += w->reward[b];
        if (w->terminated[b] | w->truncated[b]) {
            memset(mask, 0, nodes);
            mask[0] = 1;
        }
    }
}

void reset(const World *w) {
    const int64_t nodes = w->nodes;
    for (int64_t b = 0; b < w->rows; b++) {
        w->current_node[b] = w->i[b] = 0;
        w->trips[b] = w->tour_len[b] = w->overflows[b] = w->missed[b] = 0;
        w->skipped[b] = (int32_t)nodes - 1;
        for (int64_t j = 1; j < nodes; j++)
            w->missed[b] += w->must_go[b * nodes + j];
        w->load[b] = w->collected[b] = w->tour_length[b] = w->trip_length[b] = w->reward[b] = 0;
        w->objective[b] = 0;
        w->terminated[b] = w->truncated[b] = w->illegal[b] = 0;
        memset(w->visited + b * nodes, 0, nodes);
        mark(w, b);
    }
}
